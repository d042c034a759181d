/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/reference_priv.h"

#include <math.h>

#define EPS 1e-5

int ref_argmax(const double *values, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++) {
        if (values[i] > values[best]) {
            best = i;
        }
    }
    return best;
}

static double dot(const float *w, const double *x, int count)
{
    double sum[4] = {0.0, 0.0, 0.0, 0.0};
    for (int i = 0; i < count; i += 4) {
        for (int lane = 0; lane < 4; lane++) {
            sum[lane] += (double)w[i + lane] * x[i + lane];
        }
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

void ref_multiply(double *y, const float *w, const double *x, int rows, int in)
{
    for (int row = 0; row < rows; row++) {
        y[row] = dot(w + row * in, x, in);
    }
}

double ref_sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

double ref_inverse_rms(const double *x, int count)
{
    double sum = 0.0;
    for (int i = 0; i < count; i++) {
        sum += x[i] * x[i];
    }
    return 1.0 / sqrt(sum / count + EPS);
}

void ref_rms_norm(double *y, const double *x, const float *weight, int count)
{
    double scale = ref_inverse_rms(x, count);
    for (int i = 0; i < count; i++) {
        y[i] = x[i] * scale * (double)weight[i];
    }
}

void ref_softmax(double *score, int count)
{
    double top = score[ref_argmax(score, count)], sum = 0.0;
    for (int i = 0; i < count; i++) {
        score[i] = exp(score[i] - top);
        sum += score[i];
    }
    for (int i = 0; i < count; i++) {
        score[i] /= sum;
    }
}
