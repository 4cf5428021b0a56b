// What convolutions need beside cuDNN or a matrix product: windows as rows, the way back, and the order of weights.
#include "common.cuh"

// columns[n,i,j,u,v,c] = x[n, i·s+u−p, j·s+v−p, first_channel + c], 0 outside of x; c runs over one group's `channels`.
extern "C" __global__ void im2col(const T *x, T *columns, int images, int height, int width, int all_channels,
                                  int first_channel, int channels, int y_height, int y_width, int kernel_h,
                                  int kernel_w, int stride_h, int stride_w, int pad_h, int pad_w) {
    int window = kernel_h * kernel_w * channels;
    EACH_ROW(row, images * y_height) EACH_IN_ROW(k, y_width * window) {
        int n = row / y_height, i = row % y_height, j = k / window, place = k % window;
        int c = place % channels, u = place / channels / kernel_w, v = place / channels % kernel_w;
        int h = i * stride_h + u - pad_h, w = j * stride_w + v - pad_w;
        bool inside = 0 <= h && h < height && 0 <= w && w < width;
        Index from = (((Index)n * height + h) * width + w) * all_channels + first_channel + c;
        columns[(Index)row * y_width * window + k] = inside ? x[from] : T(0);
    }
}

// dx[n,h,w,first_channel + c] = Σ of columns over the windows that hold the element, each at its place in the window.
extern "C" __global__ void col2im(const T *columns, T *dx, int images, int height, int width, int all_channels,
                                  int first_channel, int channels, int y_height, int y_width, int kernel_h,
                                  int kernel_w, int stride_h, int stride_w, int pad_h, int pad_w) {
    EACH_ROW(row, images * height) EACH_IN_ROW(k, width * channels) {
        int n = row / height, h = row % height, w = k / channels, c = k % channels;
        int i1 = last_window(h, stride_h, pad_h, y_height), j1 = last_window(w, stride_w, pad_w, y_width);
        T sum = 0;
        for (int i = first_window(h, kernel_h, stride_h, pad_h); i <= i1; i++)
            for (int j = first_window(w, kernel_w, stride_w, pad_w); j <= j1; j++) {
                int u = h + pad_h - i * stride_h, v = w + pad_w - j * stride_w;
                Index window = ((Index)n * y_height + i) * y_width + j;
                sum += columns[((window * kernel_h + u) * kernel_w + v) * channels + c];
            }
        dx[((Index)row * width + w) * all_channels + first_channel + c] = sum;
    }
}

// out[j][i] = a[i][j] for a (rows, columns). Weights HWIO are a matrix (HWI, O), cuDNN's OHWI its transpose.
extern "C" __global__ void transpose(const T *a, T *out, int rows, int columns) {
    EACH_ROW(j, columns) EACH_IN_ROW(i, rows) out[(Index)j * rows + i] = a[(Index)i * columns + j];
}
