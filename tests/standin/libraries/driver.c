/* libcuda: the driver's calls that PyTorch looks up by name, mostly for expandable segments. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include "standin.h"
#include "cuda.h"
#include "cuda_runtime_api.h"

/* --- virtual memory: addresses and physical memory apart --------------------------------------------------------- */

typedef struct { int device; size_t bytes; } Physical;

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags f) {
    return *bytes = 2 << 20, CUDA_SUCCESS;
}
CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint,
                             unsigned long long flags) {
    return *address = (CUdeviceptr)standin_reserve(standin_device(), bytes), CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    return standin_unreserve((void *)address, bytes), CUDA_SUCCESS;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
    int device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? prop->location.id : standin_device();
    if (!standin_take(device, bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    Physical *made = malloc(sizeof *made);
    *made = (Physical){device, bytes};
    return *handle = (CUmemGenericAllocationHandle)made, CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    Physical *physical = (Physical *)handle;
    standin_give(physical->device, physical->bytes);
    return free(physical), CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) { return standin_forget((void *)address, bytes), CUDA_SUCCESS; }

/* --- devices and contexts ---------------------------------------------------------------------------------------- */

CUresult cuDeviceGet(CUdevice *device, int ordinal) { return *device = ordinal, CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { return *count = standin_device_count(), CUDA_SUCCESS; }
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    if (attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) return *value = 1, CUDA_SUCCESS;
    return (CUresult)cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, device); /* same numbers */
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    if (flags) *flags = 0;
    return *active = 1, CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    return *context = (CUcontext)(size_t)(device + 1), CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) { return *context = (CUcontext)(size_t)(standin_device() + 1), CUDA_SUCCESS; }
CUresult cuCtxSetCurrent(CUcontext context) {
    return context ? standin_set_device((int)(size_t)context - 1) : (void)0, CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice *device) { return *device = standin_device(), CUDA_SUCCESS; }
CUresult cuDriverGetVersion(int *version) { return *version = CUDA_VERSION, CUDA_SUCCESS; }
CUresult cuGetErrorString(CUresult error, const char **text) {
    return *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "an error of the stand-in", CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char **text) { return cuGetErrorString(error, text); }
CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address) {
    if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
        *(CUcontext *)value = (CUcontext)(size_t)(standin_device_of((void *)address) + 1);
    else if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) *(int *)value = standin_device_of((void *)address);
    else memset(value, 0, 4);
    return CUDA_SUCCESS;
}

/* --- modules that nvrtc or Triton compiled ----------------------------------------------------------------------- */

CUresult cuModuleLoadData(CUmodule *module, const void *image) { return *module = standin_object(), CUDA_SUCCESS; }
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned n, CUjit_option *options, void **values) {
    return cuModuleLoadData(module, image);
}
CUresult cuModuleLoad(CUmodule *module, const char *file) { return cuModuleLoadData(module, file); }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    return *function = standin_object(), CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS ? 32 : 0;
    return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction f, int threads, size_t shared) {
    return (CUresult)cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, f, threads, shared);
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
    return *address = (CUdeviceptr)standin_object(), *bytes = 64, CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction f, const CUlaunchConfig *config) {
    return *clusters = standin_card()->processors, CUDA_SUCCESS;
}
