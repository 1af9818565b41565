# CRC-32 by carry-less multiplication, on processors of x86-64 that have it: about ten times the speed of tables.
#
# A reflected CRC is the remainder of the message, taken as a polynomial over bits, by P. Sixteen bytes x that stand n
# bits before the next sixteen may be replaced by anything congruent to x * 2^n: multiplying their halves by 2^(n+32)
# mod P and 2^(n-32) mod P gives such a thing of sixteen bytes again, which is added to the bytes n bits on. So a
# message of any length becomes sixteen bytes with the same CRC, and those go through the tables of message_kernel.py.
# The constants are those remainders, bits reversed and shifted by one: for n = 128, and for n = 512, four lanes at once.
# Source: Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #include <cpuid.h>
    #include <tmmintrin.h>
    #include <wmmintrin.h>

    static int crc_can_fold(void) {
        unsigned int a, b, c, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (c & 1u << 1) && (c & 1u << 9); /* PCLMULQDQ and SSSE3 */
    }

    __attribute__((target("pclmul,ssse3")))
    static inline __m128i crc_fold_once(__m128i state, __m128i factors, __m128i next) {
        __m128i low = _mm_clmulepi64_si128(state, factors, 0x00);
        __m128i high = _mm_clmulepi64_si128(state, factors, 0x11);
        return _mm_xor_si128(_mm_xor_si128(low, high), next);
    }

    /* `size` bytes, 16 at least, as sixteen: the low half returned, the high one set. What is over a multiple of
       sixteen comes first, behind zeros, which change nothing before the CRC (so far) is added to the first bytes. */
    __attribute__((target("pclmul,ssse3")))
    static uint64_t crc_fold(const uint8_t *data, size_t size, uint32_t crc, uint64_t *high) {
        static const uint8_t moves[32] = {
            128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128,
            0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
        const __m128i by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
        const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
        size_t over = size & 15;
        const __m128i *at = (const __m128i *)(data + over);
        const __m128i *end = at + size / 16;
        __m128i start = _mm_xor_si128(_mm_loadu_si128((const __m128i *)data), _mm_cvtsi32_si128((int)crc));
        __m128i state = _mm_shuffle_epi8(start, _mm_loadu_si128((const __m128i *)(moves + over)));
        uint32_t rest = over < 4 ? crc >> 8 * over : 0;
        state = crc_fold_once(state, by_128, _mm_xor_si128(_mm_loadu_si128(at++), _mm_cvtsi32_si128((int)rest)));
        if (end - at >= 7) {
            __m128i two = _mm_loadu_si128(at), three = _mm_loadu_si128(at + 1), four = _mm_loadu_si128(at + 2);
            at += 3;
            for (; end - at >= 4; at += 4) {
                state = crc_fold_once(state, by_512, _mm_loadu_si128(at));
                two = crc_fold_once(two, by_512, _mm_loadu_si128(at + 1));
                three = crc_fold_once(three, by_512, _mm_loadu_si128(at + 2));
                four = crc_fold_once(four, by_512, _mm_loadu_si128(at + 3));
            }
            state = crc_fold_once(state, by_128, two);
            state = crc_fold_once(state, by_128, three);
            state = crc_fold_once(state, by_128, four);
        }
        for (; at < end; at++)
            state = crc_fold_once(state, by_128, _mm_loadu_si128(at));
        *high = (uint64_t)_mm_cvtsi128_si64(_mm_srli_si128(state, 8));
        return (uint64_t)_mm_cvtsi128_si64(state);
    }
    #else
    static int crc_can_fold(void) { return 0; }
    static uint64_t crc_fold(const uint8_t *data, size_t size, uint32_t crc, uint64_t *high) {
        (void)data; (void)size; (void)crc;
        *high = 0;
        return 0;
    }
    #endif
    """
    bint crc_can_fold() noexcept nogil
    uint64_t crc_fold(const uint8_t *data, size_t size, uint32_t crc, uint64_t *high) noexcept nogil
