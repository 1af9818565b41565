# CRC-32C in C, for compiled loops that take one batch after the other without the interpreter.
#
# Eight bytes a step: by the processor's own instruction where it has one (SSE 4.2), otherwise by eight tables, about a
# quarter as fast. Each step of the instruction waits three cycles for the one before. So long data is first folded to 64
# bytes with the same CRC, by carry-less multiplication (see crc_folding.pxd, also on the constants), in the widest
# registers that the processor multiplies:
#
#     512 bits  VPCLMULQDQ with AVX-512   256 bytes a step in sixteen lanes, about ten times as fast
#     256       VPCLMULQDQ with AVX2      128 bytes a step in eight lanes, three times as fast on Zen 3
#     128       PCLMULQDQ                 64 bytes a step in four lanes, 1.5 times on Zen 3, three times elsewhere
#
# Zen 3 starts a multiplication every two cycles, whether of 128 or of 256 bits, and two accumulators of 256 bits keep
# it busy. Four do so where one starts every cycle. Eight were no faster.
#
# `crc32c_prepare` makes the tables, and must have returned before the first `crc32c_words`.
# Source: Kounavis and Berry, "A Systematic Approach to Building High Performance, Software-based, CRC Generators",
# Intel 2005, for the tables.
from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #ifndef HEADRACE_CRC32C_WORDS
    #define HEADRACE_CRC32C_WORDS
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>
    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #include <cpuid.h>
    #include <immintrin.h>
    #if defined(__clang__) ? __clang_major__ >= 8 : __GNUC__ >= 9
    #define HEADRACE_CRC32C_512
    #endif
    #if defined(__clang__) ? __clang_major__ >= 8 : __GNUC__ >= 10
    #define HEADRACE_CRC32C_256 /* the headers of GCC 10 ask for no more than AVX */
    #endif
    #if defined(__clang__) && __clang_major__ >= 14
    #define HEADRACE_SSE42 "sse4.2,crc32" /* `zig cc -mcpu=baseline` turns off what SSE 4.2 would imply */
    #else
    #define HEADRACE_SSE42 "sse4.2"
    #endif

    /* From where folding pays: the chain takes 18 ns for 256 bytes, registers of 128 bits 19, of 256 bits 11. */
    #define CRC32C_FOLDED_BYTES_MIN 512
    #define CRC32C_FOLDED_BY_256_BYTES_MIN 256

    static int crc32c_folding_bits; /* of the widest register in which the processor can fold, or 0 */

    static int crc32c_has_instruction(void) {
        unsigned int a, b, c, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (c & 1u << 20); /* SSE 4.2 */
    }

    /* Whether the processor can fold in registers of so many bits, and the system keeps such registers. It asks the
       processor itself: in what `zig cc` builds, `__builtin_cpu_supports` says no to everything. */
    static int crc32c_can_fold(int bits) {
        unsigned int a, b, c, d, kept;
        if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 20) || !(c & 1u << 1)) /* SSE 4.2 and PCLMULQDQ */
            return 0;
        if (bits == 128)
            return 1;
        if (!(c & 1u << 27) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(c & 1u << 10)) /* XGETBV, VPCLMULQDQ */
            return 0;
        __asm__ volatile("xgetbv" : "=a"(kept), "=d"(d) : "c"(0));
    #ifdef HEADRACE_CRC32C_512
        if (bits == 512)
            return (b & 1u << 16) && (kept & 0xe6) == 0xe6; /* AVX-512F; registers of 512 bits, masks and below */
    #endif
    #ifdef HEADRACE_CRC32C_256
        if (bits == 256)
            return (b & 1u << 5) && (kept & 6) == 6; /* AVX2; registers of 256 bits and below */
    #endif
        (void)kept;
        return 0;
    }

    static void crc32c_prepare_folding(void) {
        for (int bits = 128; bits <= 512; bits *= 2)
            if (crc32c_can_fold(bits))
                crc32c_folding_bits = bits;
    }

    __attribute__((target(HEADRACE_SSE42)))
    static inline uint64_t crc32c_append(uint64_t crc, const uint8_t *data, size_t size) {
        for (; size >= 8; data += 8, size -= 8) {
            uint64_t word;
            memcpy(&word, data, 8);
            crc = _mm_crc32_u64(crc, word);
        }
        for (; size; data++, size--)
            crc = _mm_crc32_u8((uint32_t)crc, *data);
        return crc;
    }

    __attribute__((target("pclmul," HEADRACE_SSE42)))
    static inline __m128i crc32c_fold_once(__m128i state, __m128i factors, const uint8_t *next) {
        __m128i low = _mm_clmulepi64_si128(state, factors, 0x00);
        __m128i high = _mm_clmulepi64_si128(state, factors, 0x11);
        return _mm_xor_si128(_mm_xor_si128(low, high), _mm_loadu_si128((const __m128i *)next));
    }

    /* `size` bytes, a multiple of 64. */
    __attribute__((target("pclmul," HEADRACE_SSE42)))
    static uint64_t crc32c_fold_by_128(const uint8_t *data, size_t size) {
        const __m128i by_512 = _mm_set_epi64x(0x9e4addf8, 0x740eef02);
        __m128i lanes[4];
        for (int lane = 0; lane < 4; lane++)
            lanes[lane] = _mm_loadu_si128((const __m128i *)data + lane);
        lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128(-1)); /* where every CRC begins */
        for (data += 64, size -= 64; size; data += 64, size -= 64)
            for (int lane = 0; lane < 4; lane++)
                lanes[lane] = crc32c_fold_once(lanes[lane], by_512, data + 16 * lane);
        return crc32c_append(0, (const uint8_t *)lanes, 64);
    }

    /* The compiler ends functions with AVX by VZEROUPPER, without which code with SSE would be slow on Intel's. */
    #ifdef HEADRACE_CRC32C_256
    __attribute__((target("avx2,vpclmulqdq,pclmul," HEADRACE_SSE42)))
    static inline __m256i crc32c_fold_two(__m256i state, __m256i factors, __m256i next) {
        __m256i low = _mm256_clmulepi64_epi128(state, factors, 0x00);
        __m256i high = _mm256_clmulepi64_epi128(state, factors, 0x11);
        return _mm256_xor_si256(_mm256_xor_si256(low, high), next);
    }

    __attribute__((target("avx2,vpclmulqdq,pclmul," HEADRACE_SSE42)))
    static inline __m256i crc32c_load_two(const uint8_t *data) {
        return _mm256_loadu_si256((const __m256i *)data);
    }

    /* `size` bytes, a multiple of 64, 128 at least. GCC would keep an array of the lanes in memory. */
    __attribute__((target("avx2,vpclmulqdq,pclmul," HEADRACE_SSE42)))
    static uint64_t crc32c_fold_by_256(const uint8_t *data, size_t size) {
        const __m256i by_512 = _mm256_broadcastsi128_si256(_mm_set_epi64x(0x9e4addf8, 0x740eef02));
        const __m256i by_1024 = _mm256_broadcastsi128_si256(_mm_set_epi64x(0x0d3b6092, 0x6992cea2));
        __m256i one = _mm256_xor_si256(crc32c_load_two(data), _mm256_set_epi32(0, 0, 0, 0, 0, 0, 0, -1));
        __m256i two = crc32c_load_two(data + 32);
        __m256i three = crc32c_load_two(data + 64);
        __m256i four = crc32c_load_two(data + 96);
        uint8_t folded[64];
        for (data += 128, size -= 128; size >= 128; data += 128, size -= 128) {
            one = crc32c_fold_two(one, by_1024, crc32c_load_two(data));
            two = crc32c_fold_two(two, by_1024, crc32c_load_two(data + 32));
            three = crc32c_fold_two(three, by_1024, crc32c_load_two(data + 64));
            four = crc32c_fold_two(four, by_1024, crc32c_load_two(data + 96));
        }
        one = crc32c_fold_two(one, by_512, three);
        two = crc32c_fold_two(two, by_512, four);
        if (size) {
            one = crc32c_fold_two(one, by_512, crc32c_load_two(data));
            two = crc32c_fold_two(two, by_512, crc32c_load_two(data + 32));
        }
        _mm256_storeu_si256((__m256i *)folded, one);
        _mm256_storeu_si256((__m256i *)(folded + 32), two);
        return crc32c_append(0, folded, 64);
    }
    #endif

    #ifdef HEADRACE_CRC32C_512
    __attribute__((target("avx512f,vpclmulqdq,pclmul," HEADRACE_SSE42)))
    static inline __m512i crc32c_fold_four(__m512i state, __m512i factors, __m512i next) {
        __m512i low = _mm512_clmulepi64_epi128(state, factors, 0x00);
        __m512i high = _mm512_clmulepi64_epi128(state, factors, 0x11);
        return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* the sum of all three */
    }

    /* `size` bytes, a multiple of 256. */
    __attribute__((target("avx512f,vpclmulqdq,pclmul," HEADRACE_SSE42)))
    static uint64_t crc32c_fold_by_512(const uint8_t *data, size_t size) {
        const __m512i by_512 = _mm512_broadcast_i32x4(_mm_set_epi64x(0x9e4addf8, 0x740eef02));
        const __m512i by_2048 = _mm512_broadcast_i32x4(_mm_set_epi64x(0xb9e02b86, 0xdcb17aa4));
        __m512i lanes[4], state;
        uint8_t folded[64];
        for (int lane = 0; lane < 4; lane++)
            lanes[lane] = _mm512_loadu_si512(data + 64 * lane);
        lanes[0] = _mm512_xor_si512(lanes[0], _mm512_maskz_set1_epi32(1, -1));
        for (data += 256, size -= 256; size; data += 256, size -= 256)
            for (int lane = 0; lane < 4; lane++)
                lanes[lane] = crc32c_fold_four(lanes[lane], by_2048, _mm512_loadu_si512(data + 64 * lane));
        state = lanes[0];
        for (int lane = 1; lane < 4; lane++)
            state = crc32c_fold_four(state, by_512, lanes[lane]);
        _mm512_storeu_si512(folded, state);
        return crc32c_append(0, folded, 64);
    }
    #endif

    /* By the instruction. Long data is folded first in registers of so many bits, which `crc32c_can_fold`, or 0. */
    __attribute__((target(HEADRACE_SSE42)))
    static inline uint32_t crc32c_folded(const uint8_t *data, size_t size, int bits) {
        uint64_t crc = 0xFFFFFFFF;
        if (size >= CRC32C_FOLDED_BY_256_BYTES_MIN && bits) {
            size_t whole = size & ~(size_t)63;
    #ifdef HEADRACE_CRC32C_256
            if (bits == 256)
                crc = crc32c_fold_by_256(data, whole);
            else
    #endif
            if (size < CRC32C_FOLDED_BYTES_MIN)
                whole = 0;
    #ifdef HEADRACE_CRC32C_512
            else if (bits == 512)
                crc = crc32c_fold_by_512(data, whole &= ~(size_t)255);
    #endif
            else
                crc = crc32c_fold_by_128(data, whole);
            data += whole;
            size -= whole;
        }
        return (uint32_t)crc32c_append(crc, data, size) ^ 0xFFFFFFFF;
    }
    #else
    static int crc32c_has_instruction(void) { return 0; }
    static const int crc32c_folding_bits = 0;
    static int crc32c_can_fold(int bits) { (void)bits; return 0; }
    static void crc32c_prepare_folding(void) { }
    static uint32_t crc32c_folded(const uint8_t *data, size_t size, int bits) {
        (void)data; (void)size; (void)bits;
        return 0;
    }
    #endif

    static uint32_t crc32c_tables[8][256];

    static void crc32c_prepare(void) {
        crc32c_prepare_folding();
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = byte;
            for (int bit = 0; bit < 8; bit++)
                crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
            crc32c_tables[0][byte] = crc;
        }
        for (int table = 1; table < 8; table++)
            for (int byte = 0; byte < 256; byte++) {
                uint32_t crc = crc32c_tables[table - 1][byte];
                crc32c_tables[table][byte] = crc >> 8 ^ crc32c_tables[0][crc & 0xFF];
            }
    }

    static uint32_t crc32c_by_tables(const uint8_t *data, size_t size) {
        uint32_t crc = 0xFFFFFFFF;
        for (; size >= 8; data += 8, size -= 8) {
            crc ^= (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
            crc = crc32c_tables[7][crc & 0xFF] ^ crc32c_tables[6][crc >> 8 & 0xFF]
                ^ crc32c_tables[5][crc >> 16 & 0xFF] ^ crc32c_tables[4][crc >> 24]
                ^ crc32c_tables[3][data[4]] ^ crc32c_tables[2][data[5]]
                ^ crc32c_tables[1][data[6]] ^ crc32c_tables[0][data[7]];
        }
        for (; size; data++, size--)
            crc = crc >> 8 ^ crc32c_tables[0][(crc ^ *data) & 0xFF];
        return crc ^ 0xFFFFFFFF;
    }

    static uint32_t crc32c_words(const uint8_t *data, size_t size, int by_instruction) {
        return by_instruction ? crc32c_folded(data, size, crc32c_folding_bits) : crc32c_by_tables(data, size);
    }
    #endif
    """
    void crc32c_prepare() noexcept nogil
    bint crc32c_has_instruction() noexcept nogil
    const int crc32c_folding_bits
    bint crc32c_can_fold(int bits) noexcept nogil
    uint32_t crc32c_folded(const uint8_t *data, size_t size, int bits) noexcept nogil
    uint32_t crc32c_words(const uint8_t *data, size_t size, bint by_instruction) noexcept nogil
