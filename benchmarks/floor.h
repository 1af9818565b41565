/* What the programs share that do the least there is to do: numbers of the protocol, CRC-32C, and sending it all. */
#include <errno.h>
#include <nmmintrin.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <wmmintrin.h>

enum { LANE = 1024 }; /* bytes of one of the three runs of a large checksum */

static inline uint16_t get16(const unsigned char *at) { uint16_t value; memcpy(&value, at, 2); return __builtin_bswap16(value); }
static inline uint32_t get32(const unsigned char *at) { uint32_t value; memcpy(&value, at, 4); return __builtin_bswap32(value); }
static inline uint64_t get64(const unsigned char *at) { uint64_t value; memcpy(&value, at, 8); return __builtin_bswap64(value); }
static inline unsigned char *set16(unsigned char *at, uint16_t value) { value = __builtin_bswap16(value); memcpy(at, &value, 2); return at + 2; }
static inline unsigned char *set32(unsigned char *at, uint32_t value) { value = __builtin_bswap32(value); memcpy(at, &value, 4); return at + 4; }
static inline unsigned char *set64(unsigned char *at, uint64_t value) { value = __builtin_bswap64(value); memcpy(at, &value, 8); return at + 8; }

static inline uint32_t get_varint(const unsigned char **at) {
    uint32_t value = 0;
    for (int shift = 0;; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint32_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return value;
    }
}

static inline unsigned char *set_varint(unsigned char *at, uint32_t value) {
    for (; value > 0x7f; value >>= 7) *at++ = (unsigned char)(value | 0x80);
    *at++ = (unsigned char)value;
    return at;
}

/* What a checksum is multiplied by to stand for one that `bytes` zeros follow: x to the power of 8 * bytes - 33. */
static inline uint32_t crc_shift(int bytes) {
    uint32_t power = 0x80000000;
    for (int bit = 0; bit < 8 * bytes - 33; bit++) power = power >> 1 ^ (power & 1 ? 0x82f63b78 : 0);
    return power;
}

static inline uint64_t crc_moved(uint64_t crc, uint32_t shift) {
    return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc), _mm_cvtsi64_si128(shift), 0)));
}

/* An instruction takes three cycles and can begin in each: three runs at once, joined by carry-less multiplications. */
static inline uint32_t crc32c(const unsigned char *at, size_t size) {
    static uint32_t by_one, by_two;
    uint64_t crc = 0xffffffff;
    if (!by_one) { by_one = crc_shift(LANE); by_two = crc_shift(2 * LANE); }
    for (; size >= 3 * LANE; at += 3 * LANE, size -= 3 * LANE) {
        uint64_t second = 0, third = 0, words[3];
        for (int place = 0; place < LANE; place += 8) {
            memcpy(words, at + place, 8); memcpy(words + 1, at + place + LANE, 8); memcpy(words + 2, at + place + 2 * LANE, 8);
            crc = _mm_crc32_u64(crc, words[0]); second = _mm_crc32_u64(second, words[1]); third = _mm_crc32_u64(third, words[2]);
        }
        crc = crc_moved(crc, by_two) ^ crc_moved(second, by_one) ^ third;
    }
    for (; size >= 8; at += 8, size -= 8) { uint64_t word; memcpy(&word, at, 8); crc = _mm_crc32_u64(crc, word); }
    for (; size; at++, size--) crc = _mm_crc32_u8((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}

static inline void send_all(int fd, const unsigned char *bytes, size_t size, int flags) {
    while (size) {
        ssize_t sent = send(fd, bytes, size, flags | MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) { struct pollfd wait = {fd, POLLOUT, 0}; poll(&wait, 1, -1); continue; }
        if (sent < 0) return;
        bytes += sent; size -= (size_t)sent;
    }
}
