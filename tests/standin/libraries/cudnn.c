/* libcudnn: the real one answers, about a card that is not there.

   What the backend API (graphs: convolutions, attention, norms) is asked goes to cuDNN itself, in a namespace of its own so
   that what is here and its libraries do not meet. It has no handle: cuDNN since 9.8 takes a description of a device
   ("deviceless ahead-of-time compilation") where a handle would be. Nothing is executed. Older calls: empty. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "standin.h"
#include "cuda_runtime_api.h"
#define __CUDA_RUNTIME_H__ /* C++ that is not needed here */
#include "cudnn.h"

#define OK CUDNN_STATUS_SUCCESS

/* --- the real library -------------------------------------------------------------------------------------------- */

static void *real(const char *name) {
    static void *library;
    if (!library) {
        /* First, for this namespace, a libcublasLt and a libcuda of this folder, neither of which needs a card: without
           them cuDNN leaves out its engines that use them. */
        const char *path = getenv("STANDIN_CUDNN"), *beside = getenv("STANDIN_BESIDE_CUDNN");
        Lmid_t space = LM_ID_NEWLM;
        char copy[8192], *rest = copy;
        snprintf(copy, sizeof copy, "%s", beside ? beside : "");
        for (char *one; (one = strsep(&rest, ":")) && *one;) {
            void *stub = dlmopen(space, one, RTLD_NOW);
            if (!stub || dlinfo(stub, RTLD_DI_LMID, &space)) fprintf(stderr, "stand-in: %s\n", dlerror()), exit(2);
        }
        /* The two libcs count the keys of thread-specific data each for itself, but a thread has one table. */
        int (*reserve)(pthread_key_t *, void (*)(void *)) = dlsym(dlmopen(space, "libc.so.6", RTLD_NOW), "pthread_key_create");
        for (pthread_key_t key = 0; key < 256 && !reserve(&key, NULL);) {}
        library = path ? dlmopen(space, path, RTLD_NOW) : NULL;
        if (!library) fprintf(stderr, "stand-in: no cuDNN: %s\n", path ? dlerror() : "STANDIN_CUDNN is not set"), exit(2);
    }
    /* A thread that the other libc made has no character tables in this namespace's until it is given a locale there. */
    static __thread int ready;
    if (!ready) ready = 1, ((locale_t (*)(locale_t))dlsym(library, "uselocale"))(LC_GLOBAL_LOCALE);
    void *found = dlsym(library, name);
    if (!found) fprintf(stderr, "stand-in: cuDNN has no %s\n", name), exit(2);
    return found;
}
#define REAL(name) ((__typeof__(&name))real(#name))

static cudnnBackendDescriptor_t device(void) { /* what cuDNN wants to know of the card */
    static cudnnBackendDescriptor_t made;
    if (made) return made;
    struct cudaDeviceProp p;
    cudaGetDeviceProperties(&p, 0);
    char text[2048];
    int length = snprintf(text, sizeof text,
        "{\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":%d,\"totalGlobalMem\":%zu,\"deviceName\":\"%s\","
        "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],\"warpSize\":32,\"regsPerBlock\":%d,"
        "\"maxRegistersPerSM\":%d,\"multiProcessorCount\":%d,\"maxSharedMemoryPerBlock\":%zu,"
        "\"maxSharedMemoryPerBlockOptin\":%zu,\"reservedSharedMemoryPerBlock\":%zu,\"maxCtasPerSM\":%d,"
        "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,\"pciDeviceId\":%d,\"isTccDriver\":0,\"supportCoopLaunch\":1,"
        "\"smClockRateKHz\":%d,\"memClockRateKHz\":%d,\"l2CacheSize\":%d}",
        100 * p.major + 10 * p.minor, CUDART_VERSION, p.totalGlobalMem, p.name, p.regsPerBlock, p.regsPerMultiprocessor,
        p.multiProcessorCount, p.sharedMemPerBlock, p.sharedMemPerBlockOptin, p.reservedSharedMemPerBlock,
        p.maxBlocksPerMultiProcessor, p.maxThreadsPerMultiProcessor, p.pciDeviceID, standin_card()->clock * 1000,
        standin_card()->memory_clock * 1000, p.l2CacheSize);
    cudnnStatus_t status = REAL(cudnnBackendCreateDescriptor)(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &made);
    if (!status)
        status = REAL(cudnnBackendSetAttribute)(made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, length + 1, text);
    if (!status) status = REAL(cudnnBackendFinalize)(made);
    if (status) fprintf(stderr, "stand-in: cuDNN does not take the card: %s\n", REAL(cudnnGetErrorString)(status)), exit(2);
    return made;
}

size_t cudnnGetVersion(void) { return REAL(cudnnGetVersion)(); }
size_t cudnnGetCudartVersion(void) { return REAL(cudnnGetCudartVersion)(); }
cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int *value) { return REAL(cudnnGetProperty)(type, value); }
const char *cudnnGetErrorString(cudnnStatus_t status) { return REAL(cudnnGetErrorString)(status); }
void cudnnGetLastErrorString(char *text, size_t size) { REAL(cudnnGetLastErrorString)(text, size); }

/* --- graphs ------------------------------------------------------------------------------------------------------ */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *made) {
    return REAL(cudnnBackendCreateDescriptor)(type, made);
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t made) {
    return REAL(cudnnBackendDestroyDescriptor)(made);
}
cudnnStatus_t cudnnBackendInitialize(cudnnBackendDescriptor_t descriptor) { return REAL(cudnnBackendInitialize)(descriptor); }
cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) { return REAL(cudnnBackendFinalize)(descriptor); }

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    cudnnBackendDescriptor_t card = device();
    cudnnStatus_t status = OK;
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return OK;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return REAL(cudnnBackendSetAttribute)(of, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &card);
    if (name == CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)
        status = REAL(cudnnBackendSetAttribute)(of, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &card);
    if (name == CUDNN_ATTR_ENGINE_OPERATION_GRAPH)
        status = REAL(cudnnBackendSetAttribute)(of, CUDNN_ATTR_ENGINE_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &card);
    return status ? status : REAL(cudnnBackendSetAttribute)(of, name, type, count, values);
}
cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const of, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *values) {
    cudnnStatus_t status = REAL(cudnnBackendGetAttribute)(of, name, type, room, count, values);
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && getenv("STANDIN_TRACE"))
        fprintf(stderr, "stand-in: cuDNN plan: status %d, workspace %ld\n", status, *(int64_t *)values);
    return status;
}
cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    return OK;
}
cudnnStatus_t cudnnBackendPopulateCudaGraph(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                            cudnnBackendDescriptor_t pack, cudaGraph_t graph) { return OK; }
cudnnStatus_t cudnnBackendUpdateCudaGraph(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                          cudnnBackendDescriptor_t pack, cudaGraph_t graph) { return OK; }

/* --- handles and older descriptors ------------------------------------------------------------------------------- */

typedef struct { cudaStream_t stream; } Handle;
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) { return *handle = standin_object(), OK; }
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) { return ((Handle *)handle)->stream = stream, OK; }
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) { return *stream = ((Handle *)handle)->stream, OK; }
#define MADE(name)                                                                                        \
    cudnnStatus_t cudnnCreate##name(cudnn##name##_t *made) { return *made = standin_object(), OK; } \
    cudnnStatus_t cudnnDestroy##name(cudnn##name##_t made) { return free(made), OK; }
MADE(TensorDescriptor) MADE(FilterDescriptor) MADE(ConvolutionDescriptor) MADE(ActivationDescriptor)
MADE(DropoutDescriptor) MADE(RNNDescriptor) MADE(RNNDataDescriptor) MADE(CTCLossDescriptor) MADE(PoolingDescriptor)
MADE(SpatialTransformerDescriptor)

/* --- sizes that older calls ask for ------------------------------------------------------------------------------ */

cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t z, const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t scale,
    const cudnnActivationDescriptor_t activation, size_t *bytes) {
    return *bytes = 0, OK;
}
cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops, const cudnnTensorDescriptor_t x,
    const cudnnTensorDescriptor_t y, const cudnnTensorDescriptor_t dy, const cudnnTensorDescriptor_t dz,
    const cudnnTensorDescriptor_t dx, const cudnnTensorDescriptor_t scale, const cudnnActivationDescriptor_t activation,
    size_t *bytes) {
    return *bytes = 0, OK;
}
cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(cudnnHandle_t handle, cudnnBatchNormMode_t mode,
                                                                   cudnnBatchNormOps_t ops,
                                                                   const cudnnActivationDescriptor_t activation,
                                                                   const cudnnTensorDescriptor_t x, size_t *bytes) {
    return *bytes = 0, OK;
}
cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *bytes) { return *bytes = 0, OK; }
/* The layout of a recurrent network's weights is cuDNN's own: with cuDNN switched off PyTorch runs one. */
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, size_t *bytes) {
    return *bytes = 0, CUDNN_STATUS_NOT_SUPPORTED;
}
