// Both ends of a WebSocket: a client that sends its next frame when the last has come back, on many connections, and the
// server that gives every byte back. So cheap that the gateway between them is what is full.
//
// Usage: websockets echo PORT
//        websockets load PORT CONNECTIONS SECONDS FRAME_BYTES; prints round trips and seconds
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "sockets.h"

enum { DESCRIPTORS_MAX = 65536, EVENTS_MAX = 256, FRAME_BYTES_MAX = 65535 };

static const char ASK[] =
    "GET /ws HTTP/1.1\r\nHost: bench\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
static const char ACCEPT[] =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

// The server's: whether the handshake was answered. The client's: bytes of the frame that have come back.
static int state[DESCRIPTORS_MAX];
static char buffer[65536];

static void watch(int queue, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    check(epoll_ctl(queue, EPOLL_CTL_ADD, fd, &event) != 0, "epoll_ctl");
}

static void put(int fd, const char *bytes, ssize_t count) {
    check(send(fd, bytes, count, MSG_NOSIGNAL) != count, "send");
}

static void serve(int port) {
    struct sockaddr_in address = loopback(port);
    int on = 1, queue = epoll_create1(0), listener = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    check(bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 1024) != 0, "listen");
    watch(queue, listener);
    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        int count = epoll_wait(queue, events, EVENTS_MAX, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                int client = accept(listener, NULL, NULL);
                if (client < 0) continue;
                state[client] = 0;
                watch(queue, client);
                continue;
            }
            ssize_t got = recv(fd, buffer, sizeof buffer, 0);
            if (got <= 0) {
                close(fd);
                continue;
            }
            // A client that leaves takes what was on its way with it.
            if (state[fd])
                send(fd, buffer, got, MSG_NOSIGNAL);
            else
                send(fd, ACCEPT, sizeof ACCEPT - 1, MSG_NOSIGNAL);
            state[fd] = 1;
        }
    }
}

static int open_socket(int queue, int port) {
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    check(fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0, "connect");
    put(fd, ASK, sizeof ASK - 1);
    size_t got = 0;
    do {
        ssize_t count = recv(fd, buffer + got, sizeof buffer - 1 - got, 0);
        check(count <= 0, "handshake");
        got += count;
        buffer[got] = 0;
    } while (!strstr(buffer, "\r\n\r\n"));
    check(strncmp(buffer, "HTTP/1.1 101", 12) != 0, "the handshake was refused");
    watch(queue, fd);
    return fd;
}

// A masked binary frame of so many bytes, its head included (RFC 6455 section 5.2).
static void make_frame(char *frame, int bytes) {
    int body = bytes - 6 < 126 ? bytes - 6 : bytes - 8;
    memset(frame, 0x55, bytes);
    frame[0] = (char)0x82;
    frame[1] = (char)(0x80 | (bytes - 6 < 126 ? body : 126));
    if (bytes - 6 >= 126) {
        frame[2] = (char)(body >> 8);
        frame[3] = (char)body;
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void load(int port, int connections, double seconds, int bytes) {
    static char frame[FRAME_BYTES_MAX];
    static int clients[DESCRIPTORS_MAX];
    int queue = epoll_create1(0);
    long trips = 0;
    make_frame(frame, bytes);
    for (int i = 0; i < connections; i++) clients[i] = open_socket(queue, port);
    double begun = now();
    for (int i = 0; i < connections; i++) put(clients[i], frame, bytes);
    while (now() - begun < seconds) {
        struct epoll_event events[EVENTS_MAX];
        int count = epoll_wait(queue, events, EVENTS_MAX, 1000);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            ssize_t got = recv(fd, buffer, sizeof buffer, 0);
            check(got <= 0, "recv");
            state[fd] += got;
            if (state[fd] < bytes) continue;
            state[fd] -= bytes;
            trips++;
            put(fd, frame, bytes);
        }
    }
    printf("%ld %.6f\n", trips, now() - begun);
}

int main(int count, char **words) {
    if (count == 3 && strcmp(words[1], "echo") == 0) serve(atoi(words[2]));
    if (count != 6 || atoi(words[3]) > DESCRIPTORS_MAX / 2 || atoi(words[5]) > FRAME_BYTES_MAX || atoi(words[5]) < 7) return 2;
    load(atoi(words[2]), atoi(words[3]), atof(words[4]), atoi(words[5]));
    return 0;
}
