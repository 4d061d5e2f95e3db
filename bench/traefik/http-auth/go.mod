module github.com/abbot/go-http-auth
