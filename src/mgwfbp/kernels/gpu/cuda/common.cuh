// What all kernels here share. T, the element type, is float or double, as the macro ELEMENT says (a macro called T would
// change the compiler's own headers).
//
// Arrays are contiguous, the channels last. No kernel uses shared memory, warp shuffles, atomics or __syncthreads: each
// thread writes its own results, so results do not depend on the order of threads, and the same source compiles for the
// host, where the tests run it (there the thread's indices are variables that loops set).
#ifndef MGWFBP_COMMON
#define MGWFBP_COMMON

#ifndef ELEMENT
#define ELEMENT float
#endif

typedef ELEMENT T;
typedef long long Index;  // of an element: arrays may have more than 2^31

// This thread's elements of a flat range.
#define EACH(i, count)                                                   \
    for (Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x; i < (count); \
         i += (Index)gridDim.x * blockDim.x)

// This thread's elements of rows of `width` elements; within a row int will do, and divides much faster than Index.
#define EACH_ROW(row, rows) for (int row = blockIdx.y; row < (rows); row += gridDim.y)
#define EACH_IN_ROW(k, width) \
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < (width); k += gridDim.x * blockDim.x)

// NaN is not below 0, so it passes.
__device__ inline T relu_of(T value) { return value < T(0) ? T(0) : value; }

__device__ inline int larger(int a, int b) { return a > b ? a : b; }
__device__ inline int smaller(int a, int b) { return a < b ? a : b; }

// Windows of `kernel` places start every `stride` places, the first at -pad. Those that hold the place `at` are the
// windows first_window .. last_window of `size`.
__device__ inline int first_window(int at, int kernel, int stride, int pad) {
    int past = at + pad - kernel;
    return past < 0 ? 0 : past / stride + 1;
}
__device__ inline int last_window(int at, int stride, int pad, int size) {
    return smaller((at + pad) / stride, size - 1);
}

#endif
