module github.com/traefik/traefik/dynamic/ext
