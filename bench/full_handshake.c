// wrk reuses one SSL object per connection, and SSL_clear keeps the session in it: every handshake
// but the first is a resumed one. Preloaded into wrk, this forgets the session, so that each is full.
#define _GNU_SOURCE
#include <dlfcn.h>

typedef struct ssl_st SSL;
typedef struct ssl_session_st SSL_SESSION;
int SSL_set_session(SSL *ssl, SSL_SESSION *session);

int SSL_clear(SSL *ssl) {
    static int (*original)(SSL *);
    if (!original) original = (int (*)(SSL *))dlsym(RTLD_NEXT, "SSL_clear");
    SSL_set_session(ssl, 0);
    int done = original(ssl);
    SSL_set_session(ssl, 0);
    return done;
}
