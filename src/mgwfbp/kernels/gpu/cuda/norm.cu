// Sums over all axes but the channels, and batch normalisation.
//
// A thread keeps its channel: it starts at an element and goes on by `step` elements, a multiple of `channels`, so that
// neighbouring threads read neighbouring elements however few channels there are. `step` / channels is the number of
// lanes: each lane adds up at most 256 rows in T, for one running float32 sum over all rows gave gradients off by 7e-3.
// The lanes' sums are added in double, 64 at a time, by add_lanes and at the end by last_sums or last_moments.
#include "common.cuh"

// sums[lane][c] = Σ x
extern "C" __global__ void channel_sums(const T *x, double *sums, Index count, Index step) {
    EACH(start, step) {
        T sum = 0;
        for (Index i = start; i < count; i += step) sum += x[i];
        sums[start] = sum;
    }
}

// sums[lane][0][c] = Σ x, sums[lane][1][c] = Σ x². In T only the distances from the lane's first value are added up and
// squared; in double mean(x²) − mean² then loses nothing that matters.
extern "C" __global__ void channel_moments(const T *x, double *sums, int channels, Index count, Index step) {
    EACH(start, step) {
        T origin = x[start], sum = 0, squares = 0;
        double rows = 0;
        for (Index i = start; i < count; i += step) {
            T d = x[i] - origin;
            sum += d;
            squares += d * d;
            rows += 1;
        }
        Index place = start / channels * 2 * channels + start % channels;
        double o = origin;
        sums[place] = sum + rows * o;
        sums[place + channels] = squares + 2 * o * sum + rows * o * o;
    }
}

// sums[lane][0][c] = Σ dy, sums[lane][1][c] = Σ dy·x̂, x̂ = (x − mean) · inverse_std; with relu dy counts where y > 0.
extern "C" __global__ void batch_norm_sums(const T *x, const T *y, const T *dy, const T *mean, const T *inverse_std,
                                           double *sums, int relu, int channels, Index count, Index step) {
    EACH(start, step) {
        int c = start % channels;
        T centre = mean[c], sum = 0, products = 0;
        for (Index i = start; i < count; i += step) {
            T d = relu && !(y[i] > T(0)) ? T(0) : dy[i];
            sum += d;
            products += d * (x[i] - centre);
        }
        Index place = start / channels * 2 * channels + c;
        sums[place] = sum;
        sums[place + channels] = (double)products * inverse_std[c];
    }
}

// Fewer lanes: out[i] = Σ over k of sums[i + k · step].
extern "C" __global__ void add_lanes(const double *sums, double *out, Index count, Index step) {
    EACH(start, step) {
        double sum = 0;
        for (Index i = start; i < count; i += step) sum += sums[i];
        out[start] = sum;
    }
}

// The last lanes, into T: out[i] = Σ over k of sums[i + k · width].
extern "C" __global__ void last_sums(const double *sums, T *out, Index count, Index width) {
    EACH(start, width) {
        double sum = 0;
        for (Index i = start; i < count; i += width) sum += sums[i];
        out[start] = sum;
    }
}

// The last lanes of channel_moments: mean and biased variance over `rows` rows.
extern "C" __global__ void last_moments(const double *sums, T *mean, T *variance, int channels, Index count,
                                        Index rows) {
    EACH(c, channels) {
        double sum = 0, squares = 0;
        for (Index i = c; i < count; i += 2 * channels) {
            sum += sums[i];
            squares += sums[i + channels];
        }
        double centre = sum / rows, spread = squares / rows - centre * centre;
        mean[c] = centre;
        variance[c] = spread < 0 ? 0 : spread;
    }
}

// y = gamma · x̂ + beta, plus `more` unless it is null, and max(…, 0) of it with relu.
extern "C" __global__ void batch_norm(const T *x, const T *mean, const T *inverse_std, const T *gamma, const T *beta,
                                      const T *more, T *y, int relu, int channels, Index count, Index step) {
    EACH(start, step) {
        int c = start % channels;
        T centre = mean[c], scale = gamma[c] * inverse_std[c], shift = beta[c];
        for (Index i = start; i < count; i += step) {
            T value = (x[i] - centre) * scale + shift;
            if (more) value += more[i];
            y[i] = relu ? relu_of(value) : value;
        }
    }
}

// dx = scale · (dy − mean_dy − x̂ · mean_dy_x); with relu dy counts where y > 0.
extern "C" __global__ void batch_norm_gradient(const T *x, const T *y, const T *dy, const T *mean, const T *inverse_std,
                                               const T *scale, const T *mean_dy, const T *mean_dy_x, T *dx, int relu,
                                               int channels, Index count, Index step) {
    EACH(start, step) {
        int c = start % channels;
        T centre = mean[c], factor = scale[c], offset = mean_dy[c], slope = inverse_std[c] * mean_dy_x[c];
        for (Index i = start; i < count; i += step) {
            T d = relu && !(y[i] > T(0)) ? T(0) : dy[i];
            dx[i] = factor * (d - offset - (x[i] - centre) * slope);
        }
    }
}
