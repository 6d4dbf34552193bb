/* libnvidia-ml: which process holds how much, for PyTorch's out-of-memory message. */
#include "standin.h"
#include <string.h>
#include <unistd.h>
typedef struct { unsigned pid; unsigned long long used; } Process; /* nvmlProcessInfo_v1_t */
enum { NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7 };

int nvmlDeviceGetCount_v2(unsigned *count) { return *count = (unsigned)standin_device_count(), 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) {
    unsigned number = 1;
    for (const char *c = bus; *c; c++) /* 00000000:01:00.0 is device 0, as cudaDeviceGetPCIBusId has it */
        if (*c == ':') { number = 0; for (c++; *c && *c != ':'; c++) number = 16 * number + (unsigned)(*c > '9' ? (*c | 32) - 'a' + 10 : *c - '0'); break; }
    return *device = (void *)(size_t)number, 0;
}
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, Process *processes) {
    if (*count < 1) return *count = 1, INSUFFICIENT_SIZE;
    *count = 1;
    processes->pid = (unsigned)getpid();
    processes->used = standin_card()->total - standin_free_bytes((int)(size_t)device - 1);
    return 0;
}
int nvmlDeviceGetGpuFabricInfoV(void *device, unsigned *info) { /* begins with its version and size; state 0: none */
    return memset(info + 1, 0, (*info & 0xffffff) - sizeof *info), 0;
}
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type) { return NOT_SUPPORTED; }
