module yumen/counterparts/opa

go 1.25.0

tool github.com/open-policy-agent/opa

require github.com/open-policy-agent/opa v1.22.3
