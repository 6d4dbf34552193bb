/* libcudart: a card that has memory, streams and events, and computes nothing. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include "standin.h"
#include "cuda_runtime_api.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t used[MAX_DEVICES], most[MAX_DEVICES];
static long launches, skipped_copies;
static __thread int current;
static __thread cudaError_t last_error;

static cudaError_t result(cudaError_t error) {
    if (error) last_error = error;
    return error;
}

/* --- the card ---------------------------------------------------------------------------------------------------- */

static void report(void) {
    for (int i = 0; i < standin_device_count(); i++)
        if (most[i])
            fprintf(stderr, "stand-in %d: %zu bytes held at most, %zu at the end; %ld kernels launched, %ld copies left out\n",
                    i, most[i], used[i], launches, skipped_copies);
}

const Card *standin_card(void) {
    static Card card;
    if (card.total) return &card;
    const char *text = getenv("STANDIN_CARD"); /* cards.py writes it */
    int found = text ? sscanf(text, "%127[^;];%zu;%zu;%d;%d;%d;%d;%d;%d;%d;%d;%d;%d", card.name, &card.total, &card.context,
                              &card.major, &card.minor, &card.processors, &card.threads, &card.shared,
                              &card.shared_optin, &card.l2, &card.bus, &card.clock, &card.memory_clock) : 0;
    if (found != 13) fprintf(stderr, "stand-in: STANDIN_CARD is no card: run python -m tests.standin\n"), exit(2);
    if (getenv("STANDIN_REPORT")) atexit(report);
    return &card;
}

int standin_device_count(void) {
    const char *text = getenv("STANDIN_COUNT");
    int count = text ? atoi(text) : 1;
    return count < 0 ? 0 : count > MAX_DEVICES ? MAX_DEVICES : count;
}

int standin_device(void) { return current; }
void standin_set_device(int device) { current = device; }

/* What a kernel was compiled for: the newest architecture in torch's binaries that the card runs. */
static int binary_version(void) {
    static const int built[] = {75, 80, 86, 90, 100, 110, 120};
    int sm = 10 * standin_card()->major + standin_card()->minor, best = 50;
    for (size_t i = 0; i < sizeof built / sizeof *built; i++)
        if (built[i] <= sm && built[i] / 10 == sm / 10) best = built[i];
    return best;
}

cudaError_t cudaGetDeviceCount(int *count) {
    return *count = standin_device_count(), result(*count ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaGetDevice(int *device) { return *device = current, cudaSuccess; }
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= standin_device_count()) return result(cudaErrorInvalidDevice);
    return current = device, cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { return *version = CUDART_VERSION, cudaSuccess; }

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    const Card *card = standin_card();
    if (device < 0 || device >= standin_device_count()) return result(cudaErrorInvalidDevice);
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", card->name);
    memcpy(p->uuid.bytes, "stand-in       ", 16);
    p->uuid.bytes[15] = (char)device;
    p->totalGlobalMem = card->total;
    p->sharedMemPerBlock = 48 * 1024;
    p->sharedMemPerMultiprocessor = (size_t)card->shared * 1024;
    p->sharedMemPerBlockOptin = (size_t)card->shared_optin * 1024;
    p->reservedSharedMemPerBlock = card->major >= 8 ? 1024 : 0;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = 32;
    p->memPitch = 2147483647;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->totalConstMem = 65536;
    p->major = card->major, p->minor = card->minor;
    p->textureAlignment = 512, p->texturePitchAlignment = 32;
    p->multiProcessorCount = card->processors;
    p->maxThreadsPerMultiProcessor = card->threads;
    p->maxBlocksPerMultiProcessor = card->threads == 2048 ? 32 : card->threads == 1536 ? (card->minor == 9 ? 24 : 16) : 16;
    p->canMapHostMemory = p->concurrentKernels = p->unifiedAddressing = p->streamPrioritiesSupported = 1;
    p->globalL1CacheSupported = p->localL1CacheSupported = p->managedMemory = p->cooperativeLaunch = 1;
    p->hostRegisterSupported = p->memoryPoolsSupported = p->ipcEventSupported = 1;
    p->pciBusID = device + 1;
    p->asyncEngineCount = 2;
    p->memoryBusWidth = card->bus;
    p->l2CacheSize = card->l2 * 1024 * 1024;
    p->clusterLaunch = card->major >= 9;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    struct cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error) return error;
    switch (attribute) {
#define IS(name, v) case name: *value = (int)(v); break
        IS(cudaDevAttrMaxThreadsPerBlock, p.maxThreadsPerBlock);
        IS(cudaDevAttrMaxBlockDimX, 1024);
        IS(cudaDevAttrMaxBlockDimY, 1024);
        IS(cudaDevAttrMaxBlockDimZ, 64);
        IS(cudaDevAttrMaxGridDimX, 2147483647);
        IS(cudaDevAttrMaxGridDimY, 65535);
        IS(cudaDevAttrMaxGridDimZ, 65535);
        IS(cudaDevAttrMaxSharedMemoryPerBlock, p.sharedMemPerBlock);
        IS(cudaDevAttrMaxSharedMemoryPerBlockOptin, p.sharedMemPerBlockOptin);
        IS(cudaDevAttrMaxSharedMemoryPerMultiprocessor, p.sharedMemPerMultiprocessor);
        IS(cudaDevAttrReservedSharedMemoryPerBlock, p.reservedSharedMemPerBlock);
        IS(cudaDevAttrMaxRegistersPerBlock, p.regsPerBlock);
        IS(cudaDevAttrMaxRegistersPerMultiprocessor, p.regsPerMultiprocessor);
        IS(cudaDevAttrWarpSize, 32);
        IS(cudaDevAttrMultiProcessorCount, p.multiProcessorCount);
        IS(cudaDevAttrMaxThreadsPerMultiProcessor, p.maxThreadsPerMultiProcessor);
        IS(cudaDevAttrMaxBlocksPerMultiprocessor, p.maxBlocksPerMultiProcessor);
        IS(cudaDevAttrComputeCapabilityMajor, p.major);
        IS(cudaDevAttrComputeCapabilityMinor, p.minor);
        IS(cudaDevAttrL2CacheSize, p.l2CacheSize);
        IS(cudaDevAttrGlobalMemoryBusWidth, p.memoryBusWidth);
        IS(cudaDevAttrClockRate, standin_card()->clock * 1000);
        IS(cudaDevAttrMemoryClockRate, standin_card()->memory_clock * 1000);
        IS(cudaDevAttrTextureAlignment, p.textureAlignment);
        IS(cudaDevAttrPciBusId, p.pciBusID);
        IS(cudaDevAttrUnifiedAddressing, 1);
        IS(cudaDevAttrManagedMemory, 1);
        IS(cudaDevAttrCooperativeLaunch, 1);
        IS(cudaDevAttrMemoryPoolsSupported, 1);
        IS(cudaDevAttrConcurrentKernels, 1);
        IS(cudaDevAttrStreamPrioritiesSupported, 1);
        default: *value = 0;
    }
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
    return snprintf(text, (size_t)length, "00000000:%02X:00.0", device + 1), cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) { return *can = device != peer, cudaSuccess; }

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* Each device has a range of addresses, many times its size, of host memory that takes no room until it is written.
   Like the driver's, addresses are the lowest that are free. */
typedef struct { char *address; size_t bytes; int device; } Piece;
typedef struct { Piece *piece; size_t count, room; } Pieces; /* by address */

static char *range[MAX_DEVICES];
static Pieces held[MAX_DEVICES], pinned;
enum { UNIT = 512 };

static size_t range_bytes(void) { return (size_t)1 << 42; }

static void insert(Pieces *pieces, size_t at, Piece piece) {
    if (pieces->count == pieces->room)
        pieces->piece = realloc(pieces->piece, (pieces->room = 2 * pieces->room + 64) * sizeof(Piece));
    memmove(&pieces->piece[at + 1], &pieces->piece[at], (pieces->count++ - at) * sizeof(Piece));
    pieces->piece[at] = piece;
}

static size_t find(const Pieces *pieces, const void *address) { /* the last one that begins at or before it, plus 1 */
    size_t low = 0, high = pieces->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (pieces->piece[middle].address <= (char *)address) low = middle + 1;
        else high = middle;
    }
    return low;
}

static Piece take_out(Pieces *pieces, const void *address) {
    size_t after = find(pieces, address);
    if (!after || pieces->piece[after - 1].address != address) return (Piece){0};
    Piece piece = pieces->piece[after - 1];
    memmove(&pieces->piece[after - 1], &pieces->piece[after], (--pieces->count - (after - 1)) * sizeof(Piece));
    return piece;
}

int standin_device_of(const void *address) {
    for (int i = 0; i < MAX_DEVICES; i++)
        if (range[i] && (char *)address >= range[i] && (char *)address < range[i] + range_bytes()) return i;
    return -1;
}

int standin_take(int device, size_t bytes) {
    pthread_mutex_lock(&lock);
    int fits = used[device] + bytes <= standin_card()->total - standin_card()->context;
    if (fits && (used[device] += bytes) > most[device]) most[device] = used[device];
    pthread_mutex_unlock(&lock);
    return fits;
}

void standin_give(int device, size_t bytes) {
    pthread_mutex_lock(&lock);
    used[device] -= bytes;
    pthread_mutex_unlock(&lock);
}

size_t standin_free_bytes(int device) { return standin_card()->total - standin_card()->context - used[device]; }

void *standin_reserve(int device, size_t bytes) {
    size_t align = bytes >= 1 << 20 ? 2 << 20 : UNIT;
    pthread_mutex_lock(&lock);
    if (!range[device]) {
        range[device] = mmap(NULL, range_bytes(), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (range[device] == MAP_FAILED) perror("stand-in: mmap"), exit(2);
        range[device] += -(size_t)range[device] % (2 << 20);
    }
    char *at = range[device];
    Pieces *pieces = &held[device];
    size_t i = 0;
    for (; i < pieces->count && (size_t)(pieces->piece[i].address - at) < bytes; i++) {
        at = pieces->piece[i].address + pieces->piece[i].bytes;
        at += -(size_t)at % align;
        while (i + 1 < pieces->count && pieces->piece[i + 1].address < at) i++; /* begins in what alignment skipped */
    }
    insert(pieces, i, (Piece){at, bytes, device});
    pthread_mutex_unlock(&lock);
    return at;
}

void standin_forget(void *address, size_t bytes) { madvise(address, bytes, MADV_DONTNEED); }

void standin_unreserve(void *address, size_t bytes) {
    int device = standin_device_of(address);
    if (device < 0) return;
    pthread_mutex_lock(&lock);
    take_out(&held[device], address);
    pthread_mutex_unlock(&lock);
    if (bytes >= 4096) standin_forget(address, bytes);
}

static size_t rounded(size_t bytes) { return bytes + -bytes % (bytes >= 1 << 20 ? 2 << 20 : UNIT); }

cudaError_t cudaMalloc(void **address, size_t bytes) {
    *address = NULL;
    if (!bytes) return cudaSuccess;
    bytes = rounded(bytes);
    if (!standin_take(current, bytes)) return result(cudaErrorMemoryAllocation);
    return *address = standin_reserve(current, bytes), cudaSuccess;
}

cudaError_t cudaFree(void *address) {
    if (!address) return cudaSuccess;
    int device = standin_device_of(address);
    if (device < 0) return result(cudaErrorInvalidValue);
    pthread_mutex_lock(&lock);
    Piece piece = take_out(&held[device], address);
    pthread_mutex_unlock(&lock);
    if (!piece.bytes) return result(cudaErrorInvalidValue);
    standin_give(device, piece.bytes);
    if (piece.bytes >= 4096) standin_forget(address, piece.bytes);
    return cudaSuccess;
}

cudaError_t cudaMallocAsync(void **address, size_t bytes, cudaStream_t stream) { return cudaMalloc(address, bytes); }
cudaError_t cudaFreeAsync(void *address, cudaStream_t stream) { return cudaFree(address); }
cudaError_t cudaMallocManaged(void **address, size_t bytes, unsigned flags) { return cudaMalloc(address, bytes); }

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    *total = standin_card()->total;
    return *free_bytes = standin_free_bytes(current), cudaSuccess;
}

cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned flags) {
    *address = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (*address == MAP_FAILED) return *address = NULL, result(cudaErrorMemoryAllocation);
    return cudaHostRegister(*address, bytes, flags);
}

cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned flags) {
    pthread_mutex_lock(&lock);
    insert(&pinned, find(&pinned, address), (Piece){address, bytes, 0});
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *address) {
    pthread_mutex_lock(&lock);
    take_out(&pinned, address);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *address) {
    pthread_mutex_lock(&lock);
    Piece piece = take_out(&pinned, address);
    pthread_mutex_unlock(&lock);
    if (piece.address) munmap(piece.address, piece.bytes ? piece.bytes : 1);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address) {
    memset(attributes, 0, sizeof *attributes);
    int device = standin_device_of(address);
    pthread_mutex_lock(&lock);
    size_t after = find(&pinned, address);
    int is_pinned = after && (char *)address < pinned.piece[after - 1].address + pinned.piece[after - 1].bytes;
    pthread_mutex_unlock(&lock);
    attributes->type = device >= 0 ? cudaMemoryTypeDevice : is_pinned ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    attributes->device = device >= 0 ? device : is_pinned ? current : -2;
    if (device >= 0 || is_pinned) attributes->devicePointer = (void *)address;
    if (device < 0) attributes->hostPointer = (void *)address;
    return cudaSuccess;
}

/* Kernels compute nothing, so large copies would only fill the host's memory with what nobody reads. Small ones are
   made: what .item() reads must be what someone wrote, or 0. */
void standin_copy(void *to, const void *from, size_t bytes) {
    static size_t most_copied;
    if (!most_copied) {
        const char *text = getenv("STANDIN_COPY");
        most_copied = text ? strtoull(text, NULL, 10) : 65536;
    }
    if (bytes <= most_copied) memmove(to, from, bytes);
    else skipped_copies++;
}

/* How many a kernel would have found (unique rows, places that are not 0) comes back as a single number. */
static void copy_home(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    const char *found = kind == cudaMemcpyDeviceToHost && (bytes == 4 || bytes == 8) ? getenv("STANDIN_FOUND") : NULL;
    long long number = found ? atoll(found) : 0;
    standin_copy(to, found ? &number : from, bytes);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    return copy_home(to, from, bytes, kind), cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    return copy_home(to, from, bytes, kind), cudaSuccess;
}
cudaError_t cudaMemcpyPeerAsync(void *to, int a, const void *from, int b, size_t bytes, cudaStream_t stream) {
    return standin_copy(to, from, bytes), cudaSuccess;
}
cudaError_t cudaMemset(void *to, int value, size_t bytes) {
    if (bytes <= 65536) memset(to, value, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    return cudaMemset(to, value, bytes);
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
    return *(size_t *)value = used[current], cudaSuccess;
}
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) { return *pool = standin_object(), cudaSuccess; }

/* --- streams, events, graphs: everything has already happened --------------------------------------------------- */

typedef struct { int priority; unsigned long long capture; } Stream; /* the number of the capture under way, or 0 */
typedef struct { struct timespec at; long launches; } Event;

void *standin_object(void) { return calloc(1, 64); }

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    Stream *made = standin_object();
    made->priority = priority;
    return *stream = (cudaStream_t)made, cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) { return free(stream), cudaSuccess; }
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    return *priority = (size_t)stream > 2 ? ((Stream *)stream)->priority : 0, cudaSuccess;
}

static unsigned long long capture_of(cudaStream_t stream) { return (size_t)stream > 2 ? ((Stream *)stream)->capture : 0; }

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = capture_of(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edges, size_t *count) {
    if (id) *id = capture_of(stream);
    if (graph) *graph = NULL;
    if (dependencies) *dependencies = NULL;
    if (edges) *edges = NULL;
    if (count) *count = 0;
    return cudaStreamIsCapturing(stream, status);
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    static unsigned long long captures; /* each has a number of its own: PyTorch keeps random states by it */
    if ((size_t)stream <= 2) return result(cudaErrorStreamCaptureUnsupported);
    return ((Stream *)stream)->capture = __atomic_add_fetch(&captures, 1, __ATOMIC_RELAXED), cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    ((Stream *)stream)->capture = 0;
    return *graph = standin_object(), cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
    return *exec = standin_object(), cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    return *count = nodes ? *count : 1, cudaSuccess;
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t call, void *data, unsigned flags) {
    return call(stream, cudaSuccess, data), cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void *data) { return call(data), cudaSuccess; }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    return *event = standin_object(), cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { return free(event), cudaSuccess; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    ((Event *)event)->launches = launches;
    return clock_gettime(CLOCK_MONOTONIC, &((Event *)event)->at), cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
    return cudaEventRecord(event, stream);
}
/* Without a kernel between two events no time passes: so all of cuDNN's plans are equally fast, and the first one wins. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    if (((Event *)from)->launches == ((Event *)to)->launches) return *ms = 0, cudaSuccess;
    struct timespec a = ((Event *)from)->at, b = ((Event *)to)->at;
    return *ms = (float)(1e3 * (double)(b.tv_sec - a.tv_sec) + 1e-6 * (double)(b.tv_nsec - a.tv_nsec)), cudaSuccess;
}

/* --- kernels ----------------------------------------------------------------------------------------------------- */

static __thread struct { dim3 grid, block; size_t shared; void *stream; } call[8];
static __thread int calls;

void **__cudaRegisterFatBinary(void *binary) { return standin_object(); }
char __cudaInitModule(void **module) { return 1; }
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, struct CUstream_st *stream) {
    int i = calls++ % 8;
    call[i].grid = grid, call[i].block = block, call[i].shared = shared, call[i].stream = stream;
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    int i = --calls % 8;
    *grid = call[i].grid, *block = call[i].block, *shared = call[i].shared, *(void **)stream = call[i].stream;
    return cudaSuccess;
}

static cudaError_t launch(dim3 grid, dim3 block, size_t shared) {
    __atomic_fetch_add(&launches, 1, __ATOMIC_RELAXED);
    int legal = grid.x && grid.y && grid.z && grid.x <= 2147483647u && grid.y <= 65535 && grid.z <= 65535 &&
                block.x && block.y && block.z && (size_t)block.x * block.y * block.z <= 1024 && block.z <= 64;
    if (!legal) return result(cudaErrorInvalidConfiguration);
    return result(shared <= (size_t)standin_card()->shared_optin * 1024 ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaLaunchKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
    return launch(grid, block, shared);
}
cudaError_t cudaLaunchCooperativeKernel(const void *f, dim3 grid, dim3 block, void **args, size_t shared,
                                        cudaStream_t stream) {
    return launch(grid, block, shared);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t f, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream) {
    return launch(grid, block, shared);
}
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t f, dim3 grid, dim3 block, void **args, size_t shared,
                                    cudaStream_t stream) {
    return launch(grid, block, shared);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *f, void **args) {
    return launch(config->gridDim, config->blockDim, config->dynamicSmemBytes);
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *f) { return *kernel = (cudaKernel_t)f, cudaSuccess; }
cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
    return *address = (void *)symbol, cudaSuccess; /* the host's shadow of a device's variable is as large */
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *f) {
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->numRegs = 32;
    a->binaryVersion = a->ptxVersion = binary_version();
    a->maxDynamicSharedSizeBytes = 48 * 1024;
    return cudaSuccess;
}

/* As if a kernel took no more registers than leave room for all threads. */
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *f, int threads,
                                                                   size_t shared, unsigned flags) {
    struct cudaDeviceProp p;
    cudaGetDeviceProperties(&p, current);
    int fit = p.maxThreadsPerMultiProcessor / (threads > 0 ? (threads + 31) / 32 * 32 : 32);
    if (fit > p.maxBlocksPerMultiProcessor) fit = p.maxBlocksPerMultiProcessor;
    if (shared && (size_t)fit > p.sharedMemPerMultiprocessor / (shared + p.reservedSharedMemPerBlock))
        fit = (int)(p.sharedMemPerMultiprocessor / (shared + p.reservedSharedMemPerBlock));
    return *blocks = fit, cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *f, int threads, size_t shared) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, f, threads, shared, 0);
}

/* --- errors, the driver, what is not known ----------------------------------------------------------------------- */

cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    return last_error = cudaSuccess, error;
}
cudaError_t cudaPeekAtLastError(void) { return last_error; }
const char *cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "no error";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInvalidValue: return "invalid argument";
        case cudaErrorInvalidConfiguration: return "invalid configuration argument";
        case cudaErrorInvalidDevice: return "invalid device ordinal";
        case cudaErrorNoDevice: return "no CUDA-capable device is detected";
        case cudaErrorNotSupported: return "operation not supported";
        default: return "an error that the stand-in does not name";
    }
}
const char *cudaGetErrorName(cudaError_t error) { return cudaGetErrorString(error); }

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **address, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status) {
    static void *driver;
    if (!driver) driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    *address = driver ? dlsym(driver, symbol) : NULL;
    if (!*address) standin_unknown(symbol, 0);
    if (status) *status = *address ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return *address ? cudaSuccess : result(cudaErrorSymbolNotFound);
}

/* Sharing memory among processes: refused. */
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *address) { return result(cudaErrorNotSupported); }
cudaError_t cudaIpcOpenMemHandle(void **address, cudaIpcMemHandle_t handle, unsigned flags) {
    return result(cudaErrorNotSupported);
}

long standin_unknown(const char *name, int times) {
    if (!times && getenv("STANDIN_TRACE")) fprintf(stderr, "stand-in: %s does nothing\n", name);
    return 0;
}
