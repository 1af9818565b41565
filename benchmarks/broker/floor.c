/* The least that a broker has to do for a small Produce and for a Fetch, on one core: the bound for the others.
 *
 *   Produce 9   one partition, one batch: epoll, recv, CRC-32C, base offset in place, pwrite to the page cache, send
 *   Fetch 12    one partition: the position of the offset by bisection, the head, the bytes by sendfile, the tags
 *
 * There is one log, whatever topic and partition are named, and nothing else is checked. Other requests end it.
 *
 *   cc -O3 -msse4.2 -mpclmul -o floor floor.c && ./floor PORT DIRECTORY       prints "ready"
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "../floor.h"

enum { FRAME_MAX = 4 << 20, EVENTS = 512, CONNECTIONS = 65536, NAME_MAX_BYTES = 255 };

struct place { uint64_t offset, position; };
struct partial { unsigned char *bytes; uint32_t filled; };

static struct place *places;
static size_t place_count, place_room;
static struct partial partials[CONNECTIONS]; /* of frames that did not come in one piece */
static uint64_t next_offset, log_size;
static int log_file;

static void produce(int fd, unsigned char *frame, const unsigned char *at) {
    static unsigned char answer[512];
    at += 1 + 2 + 4 + 1; /* no transaction, acks, timeout, one topic */
    const unsigned char *name = at;
    uint32_t length = get_varint(&at) - 1;
    at += length + 1; /* one partition */
    uint32_t index = get32(at);
    at += 4;
    uint32_t size = get_varint(&at) - 1;
    unsigned char *batch = (unsigned char *)at;
    int is_damaged = crc32c(batch + 21, size - 21) != get32(batch + 17);
    if (!is_damaged) {
        set64(batch, next_offset);
        if (pwrite(log_file, batch, size, (off_t)log_size) != (ssize_t)size) exit(3);
        if (place_count == place_room) places = realloc(places, (place_room = 2 * place_room + 4096) * sizeof *places);
        places[place_count++] = (struct place){next_offset, log_size};
        log_size += size;
    }
    unsigned char *out = set32(answer + 4, get32(frame + 4));
    *out++ = 0; *out++ = 2; /* tags, one topic */
    out = set_varint(out, length + 1);
    memcpy(out, name + (length > 126 ? 2 : 1), length); out += length;
    *out++ = 2; /* one partition */
    out = set32(out, index); out = set16(out, is_damaged ? 2 : 0); out = set64(out, next_offset); out = set64(out, ~0ull);
    out = set64(out, 0); *out++ = 1; *out++ = 0; *out++ = 0; *out++ = 0; /* no errors, no message, tags, tags */
    out = set32(out, 0); *out++ = 0;
    set32(answer, (uint32_t)(out - answer - 4));
    if (!is_damaged) next_offset += get32(batch + 57);
    send_all(fd, answer, (size_t)(out - answer), 0);
}

static void fetch(int fd, unsigned char *frame, const unsigned char *at) {
    static unsigned char answer[512];
    at += 4 + 4 + 4 + 4 + 1 + 4 + 4 + 1;
    const unsigned char *name = at;
    uint32_t length = get_varint(&at) - 1;
    at += length + 1;
    uint32_t index = get32(at);
    uint64_t offset = get64(at + 8), low = 0, high = place_count;
    uint32_t most = get32(at + 28), size = 0;
    while (low < high) { uint64_t middle = (low + high) / 2; if (places[middle].offset <= offset) low = middle + 1; else high = middle; }
    off_t position = (off_t)(offset >= next_offset ? log_size : places[low - 1].position);
    if (offset < next_offset) size = log_size - (uint64_t)position < most ? (uint32_t)(log_size - (uint64_t)position) : most;
    unsigned char *out = set32(answer + 4, get32(frame + 4));
    *out++ = 0; out = set32(out, 0); out = set16(out, 0); out = set32(out, 0); *out++ = 2; /* tags, times, session, topics */
    out = set_varint(out, length + 1);
    memcpy(out, name + (length > 126 ? 2 : 1), length); out += length;
    *out++ = 2;
    out = set32(out, index); out = set16(out, 0); out = set64(out, next_offset); out = set64(out, next_offset);
    out = set64(out, 0); *out++ = 0; out = set32(out, ~0u); out = set_varint(out, size + 1);
    set32(answer, (uint32_t)(out - answer - 4) + size + 3);
    send_all(fd, answer, (size_t)(out - answer), MSG_MORE);
    while (size) {
        ssize_t sent = sendfile(fd, log_file, &position, size);
        if (sent < 0 && errno == EAGAIN) { struct pollfd wait = {fd, POLLOUT, 0}; poll(&wait, 1, -1); continue; }
        if (sent <= 0) return;
        size -= (uint32_t)sent;
    }
    send_all(fd, (const unsigned char *)"\0\0\0", 3, 0);
}

static void handle(int fd, unsigned char *frame) {
    const unsigned char *at = frame + 8;
    uint16_t client = (uint16_t)(at[0] << 8 | at[1]);
    at += 2 + (client == 0xffff ? 0 : client) + 1;
    switch (get32(frame)) {
    case 0 << 16 | 9: produce(fd, frame, at); return;
    case 1 << 16 | 12: fetch(fd, frame, at); return;
    default: exit(4);
    }
}

static void drop(int fd) { partials[fd].filled = 0; close(fd); }

static void readable(int fd) {
    static unsigned char scratch[FRAME_MAX];
    struct partial *rest = &partials[fd];
    unsigned char *bytes = rest->filled ? rest->bytes : scratch;
    ssize_t got = recv(fd, bytes + rest->filled, FRAME_MAX - rest->filled, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) { drop(fd); return; }
    size_t filled = rest->filled + (size_t)got, at = 0;
    while (filled - at >= 4 && filled - at - 4 >= get32(bytes + at)) {
        handle(fd, bytes + at + 4);
        at += 4 + get32(bytes + at);
    }
    if (at < filled && !rest->bytes) rest->bytes = malloc(FRAME_MAX);
    if (at < filled) memmove(rest->bytes, bytes + at, filled - at);
    rest->filled = (uint32_t)(filled - at);
}

int main(int count, char **arguments) {
    if (count < 3) return 2;
    char path[4096];
    snprintf(path, sizeof path, "%s/floor.log", arguments[2]);
    log_file = open(path, O_CREAT | O_RDWR | O_TRUNC, 0644);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), yes = 1, polls = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons((uint16_t)atoi(arguments[1]));
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1024)) { perror("listen"); return 1; }
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, events[EVENTS];
    epoll_ctl(polls, EPOLL_CTL_ADD, listener, &event);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int ready = epoll_wait(polls, events, EVENTS, -1);
        for (int number = 0; number < ready; number++) {
            int fd = events[number].data.fd;
            if (fd != listener) { readable(fd); continue; }
            int accepted = accept4(listener, 0, 0, SOCK_NONBLOCK);
            if (accepted < 0 || accepted >= CONNECTIONS) { if (accepted >= 0) close(accepted); continue; }
            setsockopt(accepted, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
            event.data.fd = accepted;
            epoll_ctl(polls, EPOLL_CTL_ADD, accepted, &event);
        }
    }
}
