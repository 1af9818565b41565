/* The least that three brokers have to do for a replicated Produce (acks=all, all three in sync): the bound for others.
 *
 *   a leader     epoll, recv, CRC-32C, base offset in place, the bytes to both followers, pwritev to the page cache, and
 *                the answer once both have confirmed
 *   a follower   recv, CRC-32C, pwritev, one confirmation of all that came in a turn
 *   both         zeros behind the log, up to a multiple of 128 KiB: the writes into them cost half
 *
 * Each of the three processes leads the partition of its own number and follows the two others. Two processes share one
 * connection. What one has to say to the other in a turn is one frame: the position up to which it has the other's log,
 * and the new batches of its own:
 *
 *   size 4 | position 8 | batches
 *
 * Batches go out from memory; what is large, or was put off, comes from the file (sendfile). For clients there are
 * ApiVersions 3 and 4, Metadata 9, InitProducerId 4, and Produce 9 of one partition with one batch. Any topic is the
 * same one. Everything else ends it with a message, and so does the end of another process.
 *
 *   cc -O3 -msse4.2 -mpclmul -o replicated_floor replicated_floor.c
 *   ./replicated_floor NUMBER PORT0 PORT1 PORT2 DIRECTORY       prints "ready"
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../floor.h"

enum {
    NODES = 3, EVENTS = 512, PIECES = 1000, WAITING = 1 << 16, ROOM = 64 << 10, FRAME_MAX = 64 << 20,
    ANSWERS = 64 << 10, ANSWER_MAX = 8 << 10, BY_FILE = 32 << 10, KEPT = 16 << 20, ZEROS = 128 << 10,
    PRODUCE = 0 << 16 | 9, METADATA = 3 << 16 | 9, API_VERSIONS_3 = 18 << 16 | 3, API_VERSIONS_4 = 18 << 16 | 4,
    INIT_PRODUCER_ID = 22 << 16 | 4, HELLO = 0x7fff /* and the number of who speaks */
};

struct log { /* what a turn brings is gathered, and is written in one go at its end; the first piece is left free */
    int file, count;
    uint64_t size, gathered, dropped, zeros_end;
    struct iovec pieces[1 + PIECES];
};

struct peer { /* another process */
    struct connection *connection;
    unsigned char head[12];
    uint64_t told, confirmed;     /* how much of its log we have said to have, and it has of ours */
    uint64_t sent;                /* of our log */
    size_t head_left, batches_left; /* of a frame that the socket has not taken yet */
    int is_full;
};

struct connection {
    int fd, waiting, is_gone, is_freed;
    struct peer *peer;
    unsigned char *bytes, *answers;
    size_t room, filled, handled;      /* of what was received */
    size_t answered, free;             /* the size of all answers, and of those that can leave */
    struct connection *next;
};

static struct answer { struct connection *to; uint64_t position; size_t size; } waiting[WAITING];
static size_t first_waiting, last_waiting; /* answers in the order of the log, and what our log has to have for them */
static struct log logs[NODES], *own;
static struct peer peers[NODES];
static struct connection *received; /* those with frames that were handled in this turn */
static uint64_t next_offset, next_producer;
static int number, ports[NODES], polls, peer_count;

static void fail(const char *why) { fprintf(stderr, "replicated_floor %d: %s\n", number, why); exit(3); }

static void watch(struct connection *one, int how, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = one};
    if (epoll_ctl(polls, how, one->fd, &event)) fail("epoll_ctl");
}

/* ---- logs */

/* As retention does: without it the disk that all share would fill the page cache with what is to be written back. */
static void drop_old(struct log *log) {
    uint64_t end = log->size - KEPT;
    for (int other = 0; log == own && other < NODES; other++)
        if (other != number && peers[other].sent < end) end = peers[other].sent;
    if (end <= log->dropped) return;
    fallocate(log->file, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, (off_t)log->dropped, (off_t)(end - log->dropped));
    log->dropped = end;
}

/* As headrace does where the page cache has large folios: what is written next is copied to one. */
static void write_zeros(struct log *log) {
    static const char zeros[ZEROS];
    uint64_t end = (log->size + ZEROS - 1) / ZEROS * ZEROS;
    if (log->size <= log->zeros_end) return;
    if (pwrite(log->file, zeros, (size_t)(end - log->size), (off_t)log->size) < 0) fail("cannot write zeros");
    log->zeros_end = end;
}

static void write_log(struct log *log) {
    struct iovec *piece = log->pieces + 1;
    for (int left = log->count; log->gathered;) {
        ssize_t written = pwritev(log->file, piece, left, (off_t)log->size);
        if (written <= 0) fail("cannot write");
        log->size += (uint64_t)written;
        log->gathered -= (uint64_t)written;
        for (; left && (size_t)written >= piece->iov_len; piece++, left--) written -= (ssize_t)piece->iov_len;
        if (left) { piece->iov_base = (char *)piece->iov_base + written; piece->iov_len -= (size_t)written; }
    }
    log->count = 0;
    write_zeros(log);
    if (log->size - log->dropped > 2 * KEPT) drop_old(log);
}

static void gather(struct log *log, unsigned char *bytes, size_t size) {
    if (log->count == PIECES) write_log(log);
    log->pieces[++log->count] = (struct iovec){bytes, size};
    log->gathered += size;
}

/* ---- the other processes */

/* Begin a frame if the last one has gone and there is something to say. */
static int begin(struct peer *to) {
    uint64_t has = logs[to - peers].size, all = own->size + own->gathered;
    if (to->head_left || to->batches_left || (to->told == has && to->sent == all)) return 0;
    to->told = has;
    to->head_left = sizeof to->head;
    to->batches_left = all - to->sent;
    set64(set32(to->head, (uint32_t)(8 + to->batches_left)), has);
    return 1;
}

static void pass(struct peer *to, size_t taken) {
    size_t of_head = taken < to->head_left ? taken : to->head_left;
    to->head_left -= of_head;
    to->batches_left -= taken - of_head;
    to->sent += taken - of_head;
}

/* Before our log is written: a frame whose batches are all in memory, so that the followers do not wait for the disk. */
static void tell_from_memory(struct peer *to) {
    if (to->sent != own->size || own->gathered >= BY_FILE || !begin(to)) return;
    own->pieces[0] = (struct iovec){to->head, to->head_left};
    struct msghdr message = {.msg_iov = own->pieces, .msg_iovlen = 1 + (size_t)own->count};
    ssize_t taken = sendmsg(to->connection->fd, &message, MSG_NOSIGNAL);
    if (taken > 0) pass(to, (size_t)taken);
}

/* After it: whatever there is to say, as far as the socket takes it. */
static void tell(struct peer *to) {
    do {
        while (to->head_left || to->batches_left) {
            ssize_t taken;
            off_t at = (off_t)to->sent;
            if (!to->head_left) taken = sendfile(to->connection->fd, own->file, &at, to->batches_left);
            else taken = send(to->connection->fd, to->head + sizeof to->head - to->head_left, to->head_left,
                              MSG_NOSIGNAL | (to->batches_left ? MSG_MORE : 0));
            if (taken <= 0) {
                if (errno != EAGAIN) exit(0);
                if (!to->is_full) watch(to->connection, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
                to->is_full = 1;
                return;
            }
            pass(to, (size_t)taken);
        }
    } while (begin(to));
    if (to->is_full) watch(to->connection, EPOLL_CTL_MOD, EPOLLIN);
    to->is_full = 0;
}

/* A frame of another process. */
static void hear(struct peer *from, unsigned char *frame, size_t size) {
    from->confirmed = get64(frame);
    for (size_t at = 8; at < size;) {
        size_t length = 12 + get32(frame + at + 8);
        if (crc32c(frame + at + 21, length - 21) != get32(frame + at + 17)) fail("a damaged batch of a leader");
        at += length;
    }
    if (size > 8) gather(logs + (from - peers), frame + 8, size - 8);
}

static void meet(struct connection *one, int other) {
    one->peer = &peers[other];
    one->peer->connection = one;
    if (++peer_count == NODES - 1) { puts("ready"); fflush(stdout); }
}

/* ---- clients */

static unsigned char *begin_answer(struct connection *to, const unsigned char *frame, int has_tags) {
    if (to->answered > ANSWERS - ANSWER_MAX) fail("too many answers wait for one connection");
    unsigned char *out = set32(to->answers + to->answered + 4, get32(frame + 4));
    if (has_tags) *out++ = 0;
    return out;
}

/* The answer leaves when both followers have all that is gathered now, behind those before it. */
static void end_answer(struct connection *to, unsigned char *out) {
    unsigned char *start = to->answers + to->answered;
    size_t size = (size_t)(out - start);
    if (last_waiting - first_waiting == WAITING) fail("too many answers wait");
    set32(start, (uint32_t)(size - 4));
    waiting[last_waiting++ % WAITING] = (struct answer){to, own->size + own->gathered, size};
    to->answered += size;
    to->waiting++;
}

static void produce(struct connection *from, unsigned char *frame, const unsigned char *at) {
    if (at[0] != 0 || get16(at + 1) != 0xffff || at[7] != 2) fail("a Produce that is transactional, not acks=all, or not of one topic");
    const unsigned char *name = at += 8;
    uint32_t length = get_varint(&at) - 1;
    at += length;
    size_t name_size = (size_t)(at - name);
    if (*at++ != 2 || get32(at) != (uint32_t)number) fail("a Produce of more than the partition that is led here");
    at += 4;
    size_t size = get_varint(&at) - 1;
    unsigned char *batch = (unsigned char *)at;
    if (12 + get32(batch + 8) != size) fail("a Produce of more than one batch");
    int is_damaged = crc32c(batch + 21, size - 21) != get32(batch + 17);
    if (!is_damaged) { set64(batch, next_offset); gather(own, batch, size); }
    unsigned char *out = begin_answer(from, frame, 1);
    *out++ = 2;
    memcpy(out, name, name_size); out += name_size;
    *out++ = 2;
    out = set32(out, (uint32_t)number); out = set16(out, is_damaged ? 2 : 0); out = set64(out, next_offset);
    out = set64(out, ~0ull); out = set64(out, 0); *out++ = 1; *out++ = 0; *out++ = 0; *out++ = 0; /* no errors, no message, tags */
    out = set32(out, 0); *out++ = 0;
    if (!is_damaged) next_offset += 1 + get32(batch + 23);
    end_answer(from, out);
}

static unsigned char *set_nodes(unsigned char *out) {
    *out++ = NODES + 1;
    for (uint32_t node = 0; node < NODES; node++) out = set32(out, node);
    return out;
}

static void metadata(struct connection *from, unsigned char *frame, const unsigned char *at) {
    static const char host[] = "\x0a" "127.0.0.1";
    unsigned char *out = begin_answer(from, frame, 1), *end = out + ANSWER_MAX - 512;
    out = set32(out, 0); *out++ = NODES + 1;
    for (uint32_t node = 0; node < NODES; node++) {
        out = set32(out, node);
        memcpy(out, host, 10); out = set32(out + 10, (uint32_t)ports[node]); *out++ = 0; *out++ = 0; /* no rack, tags */
    }
    *out++ = 0; out = set32(out, 0); /* no name of the cluster, the controller */
    uint32_t count = get_varint(&at);
    out = set_varint(out, count ? count : 1);
    for (; count > 1 && out < end; count--) {
        uint32_t size = (uint32_t)*at; /* of a name of up to 126 bytes, with its own */
        out = set16(out, 0); memcpy(out, at, size); out += size; at += size + 1; *out++ = 0;
        *out++ = NODES + 1;
        for (uint32_t index = 0; index < NODES; index++) {
            out = set16(out, 0); out = set32(out, index); out = set32(out, index); out = set32(out, 0);
            out = set_nodes(out); out = set_nodes(out); *out++ = 1; *out++ = 0; /* none is offline, tags */
        }
        out = set32(out, 0x80000000); *out++ = 0;
    }
    if (out >= end) fail("too many topics");
    out = set32(out, 0x80000000); *out++ = 0;
    end_answer(from, out);
}

static void init_producer_id(struct connection *from, unsigned char *frame) {
    unsigned char *out = begin_answer(from, frame, 1);
    out = set32(out, 0); out = set16(out, 0); out = set64(out, NODES * next_producer++ + (uint64_t)number); out = set16(out, 0);
    *out++ = 0;
    end_answer(from, out);
}

static void api_versions(struct connection *from, unsigned char *frame) {
    static const uint16_t apis[][3] = {{0, 3, 9}, {3, 9, 9}, {18, 3, 4}, {22, 4, 4}}; /* clients do without Produce 3 to 8 */
    unsigned char *out = begin_answer(from, frame, 0);
    out = set16(out, 0); *out++ = 1 + sizeof apis / sizeof *apis;
    for (size_t place = 0; place < sizeof apis / sizeof *apis; place++) {
        for (int part = 0; part < 3; part++) out = set16(out, apis[place][part]);
        *out++ = 0;
    }
    out = set32(out, 0); *out++ = 0;
    end_answer(from, out);
}

static void handle(struct connection *from, unsigned char *frame, size_t size) {
    if (from->peer) { hear(from->peer, frame, size); return; }
    if (get16(frame) == HELLO) { meet(from, get16(frame + 2)); return; }
    const unsigned char *at = frame + 8;
    uint16_t client = get16(at);
    at += 2 + (client == 0xffff ? 0 : client) + 1;
    switch (get32(frame)) {
    case PRODUCE: produce(from, frame, at); return;
    case METADATA: metadata(from, frame, at); return;
    case INIT_PRODUCER_ID: init_producer_id(from, frame); return;
    case API_VERSIONS_3: case API_VERSIONS_4: api_versions(from, frame); return;
    default: fprintf(stderr, "request %u of version %u\n", get16(frame), get16(frame + 2)); fail("a request that is not known here");
    }
}

/* Send the answers that both followers have allowed, all of a connection at once. */
static void release(void) {
    uint64_t safe = ~0ull;
    for (int other = 0; other < NODES; other++) if (other != number && peers[other].confirmed < safe) safe = peers[other].confirmed;
    struct connection *freed = 0;
    for (; first_waiting != last_waiting && waiting[first_waiting % WAITING].position <= safe; first_waiting++) {
        struct answer *answer = &waiting[first_waiting % WAITING];
        answer->to->free += answer->size;
        answer->to->waiting--;
        if (!answer->to->is_freed) { answer->to->is_freed = 1; answer->to->next = freed; freed = answer->to; }
    }
    while (freed) {
        struct connection *one = freed;
        freed = one->next;
        if (!one->is_gone) send_all(one->fd, one->answers, one->free, 0);
        memmove(one->answers, one->answers + one->free, one->answered - one->free);
        one->answered -= one->free;
        one->free = 0;
        one->is_freed = 0;
        if (one->is_gone && !one->waiting) { close(one->fd); free(one->answers); free(one->bytes); free(one); }
    }
}

/* ---- connections */

static struct connection *connected(int fd) {
    struct connection *one = calloc(1, sizeof *one);
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (fcntl(fd, F_SETFL, O_NONBLOCK)) fail("fcntl");
    *one = (struct connection){.fd = fd, .room = ROOM, .bytes = malloc(ROOM), .answers = malloc(ANSWERS)};
    watch(one, EPOLL_CTL_ADD, EPOLLIN);
    return one;
}

static void drop(struct connection *one) {
    if (one->peer) exit(0);
    one->is_gone = 1;
    watch(one, EPOLL_CTL_DEL, 0);
    if (!one->waiting) { close(one->fd); free(one->answers); free(one->bytes); free(one); }
}

/* A frame that has begun is received to its end and not further, so that the next one begins at the start of the room. */
static void readable(struct connection *one) {
    size_t end = one->filled < 4 ? one->room : 4 + (size_t)get32(one->bytes), at = 0;
    if (end > FRAME_MAX) fail("a frame that is too large");
    if (end > one->room) one->bytes = realloc(one->bytes, one->room = end);
    ssize_t got = recv(one->fd, one->bytes + one->filled, end - one->filled, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) { drop(one); return; }
    one->filled += (size_t)got;
    while (one->filled - at >= 4 && one->filled - at - 4 >= get32(one->bytes + at)) {
        handle(one, one->bytes + at + 4, get32(one->bytes + at));
        at += 4 + get32(one->bytes + at);
    }
    if (at) { one->handled = at; one->next = received; received = one; }
}

static void end_turn(void) {
    for (int other = 0; other < NODES; other++) if (other != number) write_log(&logs[other]);
    for (int other = 0; other < NODES; other++) if (peers[other].connection) tell_from_memory(&peers[other]);
    write_log(own);
    for (int other = 0; other < NODES; other++) if (peers[other].connection) tell(&peers[other]);
    for (struct connection *one = received; one; one = one->next) {
        memmove(one->bytes, one->bytes + one->handled, one->filled - one->handled);
        one->filled -= one->handled;
    }
    received = 0;
    release();
}

static struct sockaddr_in address_of(int node) {
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)ports[node])};
}

/* To another process, which may not listen yet. */
static void join(int other) {
    unsigned char hello[8];
    struct sockaddr_in address = address_of(other);
    int fd;
    while (fd = socket(AF_INET, SOCK_STREAM, 0), connect(fd, (struct sockaddr *)&address, sizeof address)) { close(fd); usleep(10000); }
    set16(set16(set32(hello, 4), HELLO), (uint16_t)number);
    send_all(fd, hello, sizeof hello, 0);
    meet(connected(fd), other);
}

int main(int count, char **arguments) {
    if (count != 6) return 2;
    number = atoi(arguments[1]);
    own = &logs[number];
    for (int node = 0; node < NODES; node++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%d-of-%d.log", arguments[5], number, node);
        logs[node].file = open(path, O_CREAT | O_RDWR | O_TRUNC, 0644);
        if (logs[node].file < 0) fail("cannot open a log");
        ports[node] = atoi(arguments[2 + node]);
    }
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), yes = 1;
    polls = epoll_create1(0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    struct sockaddr_in address = address_of(number);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 1024)) { perror("listen"); return 1; }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = 0}, events[EVENTS];
    epoll_ctl(polls, EPOLL_CTL_ADD, listener, &event);
    for (int other = 0; other < number; other++) join(other);
    for (;;) {
        int ready = epoll_wait(polls, events, EVENTS, -1);
        for (int place = 0; place < ready; place++) {
            struct connection *one = events[place].data.ptr;
            if (one) { if (events[place].events & ~(uint32_t)EPOLLOUT) readable(one); continue; }
            int accepted = accept(listener, 0, 0);
            if (accepted >= 0) connected(accepted);
        }
        end_turn();
    }
}
