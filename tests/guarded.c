/* Memory between pages without any right, as a memory handler of NumPy (NEP 49). */

#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS (1 << 17)

struct entry {
    uintptr_t address; /* 0: free, 1: was used */
    void *base;
    size_t length, size;
};

static struct entry table[SLOTS];
int guard_before; /* whether the next buffers begin at a guard page, instead of ending at one */

static size_t slot_of(uintptr_t address) {
    return (address * 0x9E3779B97F4A7C15u) >> 47 & (SLOTS - 1);
}

static struct entry *find(uintptr_t address) {
    for (size_t at = slot_of(address), tries = 0; tries < SLOTS; at = (at + 1) & (SLOTS - 1), tries++) {
        if (table[at].address == address) return &table[at];
        if (table[at].address == 0) return NULL;
    }
    return NULL;
}

void *guarded_malloc(void *ctx, size_t size) {
    size_t page = sysconf(_SC_PAGESIZE), inside = (size + page - 1) / page * page;
    if (size > (size_t)1 << 46) return NULL;
    if (inside == 0) inside = page;
    size_t length = inside + 2 * page;
    char *base = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    char *data = base + page + (guard_before ? 0 : inside - size);
    /* The end of a buffer of no bytes may be the address of another one. */
    if (mprotect(base + page, inside, PROT_READ | PROT_WRITE) || find((uintptr_t)data)) {
        munmap(base, length);
        return NULL;
    }
    for (size_t at = slot_of((uintptr_t)data), tries = 0; tries < SLOTS; at = (at + 1) & (SLOTS - 1), tries++)
        if (table[at].address < 2) {
            table[at] = (struct entry){(uintptr_t)data, base, length, size};
            return data;
        }
    munmap(base, length);
    return NULL;
}

void guarded_free(void *ctx, void *data, size_t size) {
    struct entry *found = data ? find((uintptr_t)data) : NULL;
    if (!found) return;
    munmap(found->base, found->length); /* a later use is a crash, too */
    found->address = 1;
}

void *guarded_calloc(void *ctx, size_t count, size_t size) {
    if (size && count > SIZE_MAX / size) return NULL;
    return guarded_malloc(ctx, count * size); /* new pages are zero */
}

void *guarded_realloc(void *ctx, void *old, size_t size) {
    void *data = guarded_malloc(ctx, size);
    struct entry *found = old ? find((uintptr_t)old) : NULL;
    if (data && found) {
        memcpy(data, old, found->size < size ? found->size : size);
        guarded_free(ctx, old, 0);
    }
    return data;
}

struct {
    char name[127];
    uint8_t version;
    void *ctx;
    void *(*malloc)(void *, size_t);
    void *(*calloc)(void *, size_t, size_t);
    void *(*realloc)(void *, void *, size_t);
    void (*free)(void *, void *, size_t);
} guarded_handler = {"guarded", 1, NULL, guarded_malloc, guarded_calloc, guarded_realloc, guarded_free};
