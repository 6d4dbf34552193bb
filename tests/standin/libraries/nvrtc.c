/* libnvrtc: compiles everything to nothing. */
#include "standin.h"
int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, 0; }
int nvrtcGetNumSupportedArchs(int *count) { return *count = 0, 0; }
int nvrtcCreateProgram(void **program, const char *source, const char *name, int n, const char **headers, const char **names) {
    return *program = standin_object(), 0;
}
int nvrtcGetLoweredName(void *program, const char *name, const char **lowered) { return *lowered = name, 0; }
int nvrtcGetPTXSize(void *program, size_t *bytes) { return *bytes = 1, 0; }
int nvrtcGetCUBINSize(void *program, size_t *bytes) { return *bytes = 1, 0; }
int nvrtcGetProgramLogSize(void *program, size_t *bytes) { return *bytes = 1, 0; }
const char *nvrtcGetErrorString(int error) { return "an error of the stand-in for nvrtc"; }
