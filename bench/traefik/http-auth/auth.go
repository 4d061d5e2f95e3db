// Package auth refuses every request: the lab does not use basic or digest authentication.
package auth

import "net/http"

// BasicAuth is the configuration of basic authentication.
type BasicAuth struct {
	Realm   string
	Secrets func(user, realm string) string
}

// RequireAuth refuses the request.
func (*BasicAuth) RequireAuth(w http.ResponseWriter, _ *http.Request) { refuse(w) }

// CheckSecret accepts no password.
func CheckSecret(_, _ string) bool { return false }

// DigestAuth is the state of digest authentication.
type DigestAuth struct{}

// NewDigestAuthenticator returns one that accepts nobody.
func NewDigestAuthenticator(_ string, _ func(user, realm string) string) *DigestAuth { return &DigestAuth{} }

// CheckAuth finds no user.
func (*DigestAuth) CheckAuth(_ *http.Request) (string, *string) { return "", nil }

// DigestAuthParams finds no parameters.
func DigestAuthParams(_ string) map[string]string { return nil }

// RequireAuth refuses the request.
func (*DigestAuth) RequireAuth(w http.ResponseWriter, _ *http.Request) { refuse(w) }

// RequireAuthStale refuses the request.
func (*DigestAuth) RequireAuthStale(w http.ResponseWriter, _ *http.Request) { refuse(w) }

func refuse(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized) }
