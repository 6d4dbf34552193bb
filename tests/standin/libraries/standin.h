/* What the libraries share; libcudart.so holds it. */
#pragma once
#include <stddef.h>

typedef struct { unsigned short x; } __half, __nv_bfloat16;

typedef struct {
    char name[128];
    size_t total, context;                  /* bytes: of the card, and what a CUDA context takes of them */
    int major, minor, processors, threads;  /* threads that one multiprocessor holds */
    int shared, shared_optin;               /* KiB of shared memory a multiprocessor, KiB that a block may ask for */
    int l2, bus, clock, memory_clock;       /* MiB, bits, MHz, MHz */
} Card;

enum { MAX_DEVICES = 16 };

const Card *standin_card(void);
int standin_device_count(void);
int standin_device(void);                            /* the current device of this thread */
void standin_set_device(int device);
int standin_take(int device, size_t bytes);          /* count physical memory as used; 0 if the card has not that much */
void standin_give(int device, size_t bytes);
size_t standin_free_bytes(int device);
void *standin_reserve(int device, size_t bytes);     /* addresses of a device, without physical memory */
void standin_unreserve(void *address, size_t bytes);
void standin_forget(void *address, size_t bytes);    /* its contents, that is: the host's pages under it */
int standin_device_of(const void *address);          /* -1: not a device's address */
void standin_copy(void *to, const void *from, size_t bytes); /* if small */
long standin_unknown(const char *name, int times);   /* called by generated functions; says the name if STANDIN_TRACE */
void *standin_object(void);                          /* something unique to point at: a handle */
