/* libcufft: plans that need no workspace. */
#include "standin.h"
int cufftCreate(int *plan) { return *plan = 1, 0; }
int cufftXtMakePlanMany(int plan, int rank, long long *n, long long *a, long long b, long long c, int d, long long *e,
                        long long f, long long g, int h, long long batch, size_t *bytes, int type) {
    return *bytes = 0, 0;
}
