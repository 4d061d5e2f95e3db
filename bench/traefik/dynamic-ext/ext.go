// Package ext has the extension points of the dynamic configuration, which are empty in the open source edition.
package ext

// HTTP extends the HTTP section.
type HTTP struct{}

// Router extends a router.
type Router struct{}
