// Passes over elements, the loss, and the update of the parameters.
#include "common.cuh"

// y = max(x, 0)
extern "C" __global__ void relu(const T *x, T *y, Index count) {
    EACH(i, count) y[i] = relu_of(x[i]);
}

// dx = dy where y > 0, else 0
extern "C" __global__ void relu_gradient(const T *y, const T *dy, T *dx, Index count) {
    EACH(i, count) dx[i] = y[i] > T(0) ? dy[i] : T(0);
}

// y = a + b, and max(…, 0) of it
extern "C" __global__ void add(const T *a, const T *b, T *y, int relu, Index count) {
    EACH(i, count) {
        T sum = a[i] + b[i];
        y[i] = relu ? relu_of(sum) : sum;
    }
}

// Caffe's rule: v ← momentum·v + lr·(g + weight_decay·w); w ← w − v. Nesterov: w ← w − ((1 + momentum)·v − momentum·v_old)
extern "C" __global__ void sgd_update(T *w, const T *g, T *v, T lr, T momentum, T weight_decay, int nesterov,
                                      Index count) {
    EACH(i, count) {
        T old = v[i], step = momentum * old + lr * (g[i] + weight_decay * w[i]);
        v[i] = step;
        w[i] -= nesterov ? step + momentum * (step - old) : step;
    }
}

// One thread a row of logits (rows, classes): loss = log Σ exp(x − max) − (x[label] − max), and the softmax.
// A label outside of the classes makes the loss NaN.
extern "C" __global__ void softmax_cross_entropy(const T *logits, const Index *labels, T *losses, T *probabilities,
                                                 int classes, Index rows) {
    EACH(row, rows) {
        const T *x = logits + row * classes;
        T *p = probabilities + row * classes, largest = x[0], sum = 0;
        for (int c = 1; c < classes; c++) largest = x[c] > largest || x[c] != x[c] ? x[c] : largest;
        for (int c = 0; c < classes; c++) {
            p[c] = exp(x[c] - largest);
            sum += p[c];
        }
        for (int c = 0; c < classes; c++) p[c] /= sum;
        Index label = labels[row];
        losses[row] = label >= 0 && label < classes ? log(sum) - (x[label] - largest) : sqrt(T(-1));
    }
}
