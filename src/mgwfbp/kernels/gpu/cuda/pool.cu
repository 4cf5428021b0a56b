// Pooling: x is (images, height, width, channels), y (images, y_height, y_width, channels). What lies outside of x never
// wins and counts nothing. Backward gathers: each element of dx asks the windows that hold it, so nothing is added twice.
#include "common.cuh"

// Every window holds an element of x: the layer sees to that. NaN wins.
extern "C" __global__ void max_pool(const T *x, T *y, int images, int height, int width, int channels, int y_height,
                                    int y_width, int kernel_h, int kernel_w, int stride_h, int stride_w, int pad_h,
                                    int pad_w) {
    EACH_ROW(row, images * y_height) EACH_IN_ROW(k, y_width * channels) {
        int n = row / y_height, i = row % y_height, j = k / channels, c = k % channels;
        int top = i * stride_h - pad_h, left = j * stride_w - pad_w;
        int u0 = larger(top, 0), u1 = smaller(top + kernel_h, height);
        int v0 = larger(left, 0), v1 = smaller(left + kernel_w, width);
        const T *image = x + (Index)n * height * width * channels + c;
        T largest = image[((Index)u0 * width + v0) * channels];
        for (int u = u0; u < u1; u++)
            for (int v = v0; v < v1; v++) {
                T value = image[((Index)u * width + v) * channels];
                if (value > largest || value != value) largest = value;
            }
        y[(Index)row * y_width * channels + k] = largest;
    }
}

// Where each window's first largest value lies: the place in the image, u · width + v, or −1 if there is none (NaN).
extern "C" __global__ void max_pool_places(const T *x, const T *y, int *places, int images, int height, int width,
                                           int channels, int y_height, int y_width, int kernel_h, int kernel_w,
                                           int stride_h, int stride_w, int pad_h, int pad_w) {
    EACH_ROW(row, images * y_height) EACH_IN_ROW(k, y_width * channels) {
        int n = row / y_height, i = row % y_height, j = k / channels, c = k % channels;
        int top = i * stride_h - pad_h, left = j * stride_w - pad_w, place = -1;
        const T *image = x + (Index)n * height * width * channels + c;
        T largest = y[(Index)row * y_width * channels + k];
        for (int u = larger(top, 0); u < smaller(top + kernel_h, height) && place < 0; u++)
            for (int v = larger(left, 0); v < smaller(left + kernel_w, width) && place < 0; v++)
                if (image[((Index)u * width + v) * channels] == largest) place = u * width + v;
        places[(Index)row * y_width * channels + k] = place;
    }
}

// dx = Σ of dy over the windows whose place this is.
extern "C" __global__ void max_pool_gradient(const int *places, const T *dy, T *dx, int images, int height, int width,
                                             int channels, int y_height, int y_width, int kernel_h, int kernel_w,
                                             int stride_h, int stride_w, int pad_h, int pad_w) {
    EACH_ROW(row, images * height) EACH_IN_ROW(k, width * channels) {
        int n = row / height, h = row % height, w = k / channels, c = k % channels, place = h * width + w;
        int i1 = last_window(h, stride_h, pad_h, y_height), j1 = last_window(w, stride_w, pad_w, y_width);
        T sum = 0;
        for (int i = first_window(h, kernel_h, stride_h, pad_h); i <= i1; i++)
            for (int j = first_window(w, kernel_w, stride_w, pad_w); j <= j1; j++) {
                Index window = (((Index)n * y_height + i) * y_width + j) * channels + c;
                if (places[window] == place) sum += dy[window];
            }
        dx[(Index)row * width * channels + k] = sum;
    }
}

// y = share · Σ of x over the window; share is (y_height, y_width).
extern "C" __global__ void average_pool(const T *x, const T *share, T *y, int images, int height, int width,
                                        int channels, int y_height, int y_width, int kernel_h, int kernel_w,
                                        int stride_h, int stride_w, int pad_h, int pad_w) {
    EACH_ROW(row, images * y_height) EACH_IN_ROW(k, y_width * channels) {
        int n = row / y_height, i = row % y_height, j = k / channels, c = k % channels;
        int top = i * stride_h - pad_h, left = j * stride_w - pad_w;
        const T *image = x + (Index)n * height * width * channels + c;
        T sum = 0;
        for (int u = larger(top, 0); u < smaller(top + kernel_h, height); u++)
            for (int v = larger(left, 0); v < smaller(left + kernel_w, width); v++)
                sum += image[((Index)u * width + v) * channels];
        y[(Index)row * y_width * channels + k] = sum * share[i * y_width + j];
    }
}

// dx = Σ of share · dy over the windows that hold the element.
extern "C" __global__ void average_pool_gradient(const T *dy, const T *share, T *dx, int images, int height, int width,
                                                 int channels, int y_height, int y_width, int kernel_h, int kernel_w,
                                                 int stride_h, int stride_w, int pad_h, int pad_w) {
    EACH_ROW(row, images * height) EACH_IN_ROW(k, width * channels) {
        int n = row / height, h = row % height, w = k / channels, c = k % channels;
        int i1 = last_window(h, stride_h, pad_h, y_height), j1 = last_window(w, stride_w, pad_w, y_width);
        T sum = 0;
        for (int i = first_window(h, kernel_h, stride_h, pad_h); i <= i1; i++)
            for (int j = first_window(w, kernel_w, stride_w, pad_w); j <= j1; j++)
                sum += dy[(((Index)n * y_height + i) * y_width + j) * channels + c] * share[i * y_width + j];
        dx[(Index)row * width * channels + k] = sum;
    }
}
