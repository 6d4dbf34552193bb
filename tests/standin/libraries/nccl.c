/* libnccl: collectives among ranks that all hold the same as this one. What a communicator takes of the card is not
   counted: PyTorch does not count it either. */
#include <stdlib.h>
#include <string.h>
#include "standin.h"
#include "cuda_runtime_api.h"
#define __CUDA_RUNTIME_H__ /* C++ that is not needed here */
#include "nccl.h"
typedef struct { int ranks, rank, device; } Comm;
static ncclResult_t open_comm(ncclComm_t *comm, int ranks, int rank) {
    Comm *made = standin_object();
    *made = (Comm){ranks, rank, standin_device()};
    return *comm = (ncclComm_t)made, ncclSuccess;
}
ncclResult_t ncclGetVersion(int *version) { return *version = NCCL_VERSION_CODE, ncclSuccess; }
ncclResult_t ncclGetUniqueId(ncclUniqueId *id) { return memset(id, 7, sizeof *id), ncclSuccess; }
ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank) { return open_comm(comm, ranks, rank); }
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
    return open_comm(comm, ranks, rank);
}
ncclResult_t ncclCommInitRankScalable(ncclComm_t *comm, int ranks, int rank, int n, ncclUniqueId *ids, ncclConfig_t *config) {
    return open_comm(comm, ranks, rank);
}
ncclResult_t ncclCommInitAll(ncclComm_t *comms, int n, const int *devices) {
    for (int i = 0; i < n; i++) open_comm(&comms[i], n, i);
    return ncclSuccess;
}
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made, ncclConfig_t *config) {
    return open_comm(made, ((Comm *)comm)->ranks, ((Comm *)comm)->rank);
}
ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) { return *count = ((Comm *)comm)->ranks, ncclSuccess; }
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) { return *rank = ((Comm *)comm)->rank, ncclSuccess; }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) { return *error = ncclSuccess, ncclSuccess; }
const char *ncclGetErrorString(ncclResult_t error) { return "an error of the stand-in for NCCL"; }
const char *ncclGetLastError(ncclComm_t comm) { return ""; }
ncclResult_t ncclMemAlloc(void **address, size_t bytes) { return cudaMalloc(address, bytes) ? ncclSystemError : ncclSuccess; }
ncclResult_t ncclMemFree(void *address) { return cudaFree(address), ncclSuccess; }

/* --- collectives: as if every rank had sent what this one sends, and sums were not sums -------------------------- */

static size_t width(ncclDataType_t type) {
    static const unsigned char bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return type < sizeof bytes ? bytes[type] : 1;
}
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t s) {
    size_t bytes = count * width(type);
    for (int i = 0; i < ((Comm *)comm)->ranks; i++) standin_copy((char *)to + (size_t)i * bytes, from, bytes);
    return ncclSuccess;
}
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t s) {
    return from != to ? standin_copy(to, from, count * width(type)) : (void)0, ncclSuccess;
}
ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t s) {
    // Only the root is told where to: DataParallel gives the others NULL.
    return ((Comm *)comm)->rank == root ? ncclAllReduce(from, to, count, type, op, comm, s) : ncclSuccess;
}
ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t s) {
    return ncclAllReduce(from, to, count, type, ncclSum, comm, s);
}
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t s) {
    return standin_copy(to, (const char *)from + (size_t)((Comm *)comm)->rank * count * width(type), count * width(type)), ncclSuccess;
}
