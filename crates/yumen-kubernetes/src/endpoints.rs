//! Endpoints of Services, from EndpointSlices to nodes of upstreams.
