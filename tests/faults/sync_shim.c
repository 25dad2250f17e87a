/* Slow or failing disks, for a process started with LD_PRELOAD=this.
 *
 * REMUDA_SYNC_DELAY_MS   each sync takes this much longer
 * REMUDA_SYNC_FAILS_IF   while this file is there, syncs fail with EIO; as on Linux the next one may succeed
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int sync_with(const char *name, int fd)
{
    const char *delay_ms = getenv("REMUDA_SYNC_DELAY_MS");
    const char *fails_if = getenv("REMUDA_SYNC_FAILS_IF");
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);

    if (delay_ms)
        usleep(1000 * (useconds_t)atoi(delay_ms));
    if (fails_if && access(fails_if, F_OK) == 0) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

int fsync(int fd) { return sync_with("fsync", fd); }

int fdatasync(int fd) { return sync_with("fdatasync", fd); }
