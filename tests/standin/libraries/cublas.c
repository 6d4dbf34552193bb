/* libcublas and libcublasLt: handles, modes that can be read back, one algorithm for every product. */
#include <stdlib.h>
#include <string.h>
#include "standin.h"
#define CUBLASAPI
#ifdef BLAS
#include "cublas_v2.h"
typedef struct { cublasMath_t math; cublasPointerMode_t pointer; cudaStream_t stream; int targets; } Handle;
cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) { return *handle = standin_object(), CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) { return free(handle), CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
    return *version = CUBLAS_VERSION, CUBLAS_STATUS_SUCCESS;
}
#define KEPT(name, type, field)                                                                                        \
    cublasStatus_t cublasSet##name(cublasHandle_t h, type v) { return ((Handle *)h)->field = v, CUBLAS_STATUS_SUCCESS; } \
    cublasStatus_t cublasGet##name(cublasHandle_t h, type *v) { return *v = ((Handle *)h)->field, CUBLAS_STATUS_SUCCESS; }
KEPT(MathMode, cublasMath_t, math)
KEPT(PointerMode_v2, cublasPointerMode_t, pointer)
KEPT(Stream_v2, cudaStream_t, stream)
KEPT(SmCountTarget, int, targets)
#else
#include "cublasLt.h"
/* Also what cuDNN sees of it: some of its engines for 1x1 convolutions are matrix products. */
cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) { return *handle = standin_object(), CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return free(handle), CUBLAS_STATUS_SUCCESS; }
size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int *value) {
    int version[] = {CUBLAS_VER_MAJOR, CUBLAS_VER_MINOR, CUBLAS_VER_PATCH};
    return *value = version[type], CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute, cudaDataType_t scale) {
    return *made = standin_object(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t leading) {
    return *made = standin_object(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made) {
    return *made = standin_object(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixTransformDescCreate(cublasLtMatrixTransformDesc_t *made, cudaDataType scale) {
    return *made = standin_object(), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t made) { return free(made), CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t made) { return free(made), CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t made) { return free(made), CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtMatrixTransformDescDestroy(cublasLtMatrixTransformDesc_t made) {
    return free(made), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int *found) {
    memset(results, 0, sizeof *results);
    results->wavesCount = 1;
    return *found = 1, CUBLAS_STATUS_SUCCESS;
}
#endif
