// What the kernel's socket calls alone cost: forwards each message with one receive and one send per
// direction over kept upstream connections, understanding nothing. No gateway can be cheaper on this
// machine at this moment, so the benchmark runs it beside them.
//
// One read is taken for one message, which holds for small requests and answers only.
// Usage: floor PORT UPSTREAM_PORT
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sockets.h"

enum { DESCRIPTORS_MAX = 65536, EVENTS_MAX = 1024 };
enum kind { UNUSED, CLIENT, UPSTREAM };

struct end {
    enum kind kind;
    int registered;
    int closes;  // the client asked for a connection per request
    int peer;    // the other end of the exchange under way, 0 when there is none
};

static struct end ends[DESCRIPTORS_MAX];
static int idle[DESCRIPTORS_MAX], idle_count;
static char buffer[65536];
static int queue, upstream_port;

static void watch(int fd) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = fd};
    check(epoll_ctl(queue, EPOLL_CTL_ADD, fd, &event) != 0, "epoll_ctl");
    ends[fd].registered = 1;
}

static void end_connection(int fd) {
    int peer = ends[fd].peer;
    ends[fd] = (struct end){UNUSED, 0, 0, 0};
    close(fd);
    if (peer) {
        ends[peer].peer = 0;
        end_connection(peer);
    }
}

static int upstream(void) {
    if (idle_count) return idle[--idle_count];
    struct sockaddr_in address = loopback(upstream_port);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    check(fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0, "connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ends[fd] = (struct end){UPSTREAM, 0, 0, 0};
    watch(fd);
    return fd;
}

// A request: on to an upstream connection that is free.
static void from_client(int fd) {
    ssize_t count = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (count < 0 && errno == EAGAIN) {
        if (!ends[fd].registered) watch(fd);
        return;
    }
    if (count <= 0) return end_connection(fd);
    char *option = memmem(buffer, count, "Connection: close", 17);
    if (option) {
        memcpy(option + 12, "alive", 5);  // the upstream's connection is to be kept
        ends[fd].closes = 1;
    }
    int to = upstream();
    ends[fd].peer = to;
    ends[to].peer = fd;
    send(to, buffer, count, MSG_NOSIGNAL);
}

// An answer: back to whoever asked, and the upstream connection is free again.
static void from_upstream(int fd) {
    ssize_t count = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    int to = ends[fd].peer;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
        for (int i = 0; i < idle_count; i++)
            if (idle[i] == fd) idle[i] = idle[--idle_count];
        return end_connection(fd);
    }
    if (!to) return;
    ends[fd].peer = ends[to].peer = 0;
    idle[idle_count++] = fd;
    char *kept = ends[to].closes ? memmem(buffer, count, "keep-alive", 10) : NULL;
    if (kept) memcpy(kept, "close     ", 10);
    send(to, buffer, count, MSG_NOSIGNAL | (ends[to].closes ? MSG_MORE : 0));
    if (ends[to].closes)
        end_connection(to);
    else if (!ends[to].registered)
        watch(to);
}

static void accept_all(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
        if (fd < 0) return;
        if (fd >= DESCRIPTORS_MAX) {
            close(fd);
            continue;
        }
        ends[fd] = (struct end){CLIENT, 0, 0, 0};
        from_client(fd);
        // An accept that finds nobody costs ten times the question.
        struct pollfd queued = {.fd = listener, .events = POLLIN};
        if (poll(&queued, 1, 0) == 0) return;
    }
}

int main(int argc, char **argv) {
    check(argc != 3, "usage: floor PORT UPSTREAM_PORT");
    upstream_port = atoi(argv[2]);
    int on = 1, off = 0, seconds = 5, listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = loopback(atoi(argv[1]));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
    // Inherited: a request is acknowledged by its answer.
    setsockopt(listener, IPPROTO_TCP, TCP_QUICKACK, &off, sizeof off);
    check(bind(listener, (struct sockaddr *)&address, sizeof address) != 0, "bind");
    check(listen(listener, 16384) != 0, "listen");
    queue = epoll_create1(0);
    watch(listener);
    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        int count = epoll_wait(queue, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener)
                accept_all(fd);
            else if (ends[fd].kind == CLIENT)
                from_client(fd);
            else if (ends[fd].kind == UPSTREAM)
                from_upstream(fd);
        }
    }
}
