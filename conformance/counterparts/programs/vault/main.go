// A server of HashiCorp Vault for tests: its core, its HTTP API, its store of files and its key-value engine, without the
// commands and without the plugins for clouds and databases.
package main

import (
	"log"
	"net/http"
	"os"

	"github.com/hashicorp/go-hclog"
	kv "github.com/hashicorp/vault-plugin-secrets-kv"
	vaulthttp "github.com/hashicorp/vault/http"
	"github.com/hashicorp/vault/internalshared/configutil"
	"github.com/hashicorp/vault/sdk/helper/consts"
	"github.com/hashicorp/vault/sdk/logical"
	"github.com/hashicorp/vault/sdk/physical/file"
	"github.com/hashicorp/vault/vault"
)

// The only plugin is the key-value engine.
type onlyKeyValue struct{}

func (onlyKeyValue) Contains(name string, kind consts.PluginType) bool {
	return name == "kv" && kind == consts.PluginTypeSecrets
}

func (one onlyKeyValue) Get(name string, kind consts.PluginType) (func() (interface{}, error), bool) {
	make := func() (interface{}, error) { return logical.Factory(kv.Factory), nil }
	return make, one.Contains(name, kind)
}

func (onlyKeyValue) Keys(kind consts.PluginType) []string {
	if kind == consts.PluginTypeSecrets {
		return []string{"kv"}
	}
	return nil
}

func (one onlyKeyValue) DeprecationStatus(name string, kind consts.PluginType) (consts.DeprecationStatus, bool) {
	return consts.Supported, one.Contains(name, kind)
}

func (onlyKeyValue) IsBuiltinEntPlugin(string, consts.PluginType) bool {
	return false
}

// Usage: vault ADDRESS FOLDER
func main() {
	address, folder := os.Args[1], os.Args[2]
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: os.Stderr})
	storage, err := file.NewFileBackend(map[string]string{"path": folder}, logger)
	if err != nil {
		log.Fatal(err)
	}
	core, err := vault.NewCore(&vault.CoreConfig{
		Physical:        storage,
		BuiltinRegistry: onlyKeyValue{},
		DisableMlock:    true,
		Logger:          logger,
		RedirectAddr:    "http://" + address,
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := vaulthttp.Handler.Handler(&vault.HandlerProperties{Core: core, ListenerConfig: &configutil.Listener{}})
	log.Fatal(http.ListenAndServe(address, handler))
}
