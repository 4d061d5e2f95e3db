module yumen/counterparts/vault

go 1.25.3

require (
	github.com/hashicorp/go-hclog v1.6.3
	github.com/hashicorp/vault v1.21.4
	github.com/hashicorp/vault-plugin-secrets-kv v0.25.0
	github.com/hashicorp/vault/sdk v0.21.0
)
