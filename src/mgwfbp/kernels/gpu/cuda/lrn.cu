// Local response normalisation across channels. A thread keeps its channel: `step` is a multiple of `channels`.
#include "common.cuh"

// s^−beta; every published net has beta = 0.75, which two square roots give faster than a power.
__device__ inline T power_of(T s, T beta) {
    if (beta == T(0.75)) {
        T root = sqrt(s);
        return T(1) / (root * sqrt(root));
    }
    return pow(s, -beta);
}

// scale = k + factor · Σ of x² over the channels c − half .. c + half; y = x · scale^−beta. factor = alpha / size.
extern "C" __global__ void lrn(const T *x, T *y, T *scale, int half, T factor, T beta, T k, int channels, Index count,
                               Index step) {
    EACH(start, step) {
        int c = start % channels, first = larger(c - half, 0) - c, last = smaller(c + half, channels - 1) - c;
        for (Index i = start; i < count; i += step) {
            T sum = 0;
            for (int d = first; d <= last; d++) sum += x[i + d] * x[i + d];
            T s = k + factor * sum;
            scale[i] = s;
            y[i] = x[i] * power_of(s, beta);
        }
    }
}

// dx = dy · scale^−beta − factor · x · Σ of dy·y/scale over the channels around. factor = 2 · alpha · beta / size.
extern "C" __global__ void lrn_gradient(const T *x, const T *y, const T *scale, const T *dy, T *dx, int half, T factor,
                                        T beta, int channels, Index count, Index step) {
    EACH(start, step) {
        int c = start % channels, first = larger(c - half, 0) - c, last = smaller(c + half, channels - 1) - c;
        for (Index i = start; i < count; i += step) {
            T sum = 0;
            for (int d = first; d <= last; d++) sum += dy[i + d] * y[i + d] / scale[i + d];
            dx[i] = dy[i] * power_of(scale[i], beta) - factor * x[i] * sum;
        }
    }
}
