// SPDX-License-Identifier: GPL-2.0
/*
 * A library to preload, so that rdma-core's tests of dma-bufs run in a guest
 * without a GPU: a render node that looks like i915's, whose one buffer is
 * exported by Linux's udmabuf. The node's file is a memfd. So the program maps
 * and closes it as it would a GPU's, and the RDMA driver gets a true dma-buf.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <drm/drm.h>
#include <drm/i915_drm.h>

#define NODE "/dev/dri/renderD128"
#define HANDLE 1
#define PAGE 4096ull

static int next_open(const char *path, int flags, mode_t mode)
{
	int (*next)(const char *, int, ...) = dlsym(RTLD_NEXT, "open");

	return next(path, flags, mode);
}

int open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list more;

	if (!strcmp(path, NODE))
		return memfd_create("gpu", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (flags & (O_CREAT | __O_TMPFILE)) {
		va_start(more, flags);
		mode = va_arg(more, mode_t);
		va_end(more);
	}
	return next_open(path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

/* The exporter wants whole pages of a file that cannot shrink. */
static int create(int fd, struct drm_i915_gem_create *gem)
{
	gem->handle = HANDLE;
	if (ftruncate(fd, (gem->size + PAGE - 1) & ~(PAGE - 1)))
		return -1;
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
}

static int export(int fd, struct drm_prime_handle *prime)
{
	struct udmabuf_create buf = { .memfd = fd };
	struct stat file;
	int maker;

	if (prime->handle != HANDLE || fstat(fd, &file))
		return -1;
	buf.size = file.st_size;
	maker = next_open("/dev/udmabuf", O_RDWR, 0);
	if (maker < 0)
		return -1;
	prime->fd = ioctl(maker, UDMABUF_CREATE, &buf);
	close(maker);
	return prime->fd < 0 ? -1 : 0;
}

static int render(int fd, unsigned long request, void *arg)
{
	switch (request) {
	case DRM_IOCTL_VERSION:
		strcpy(((struct drm_version *)arg)->name, "i915");
		return 0;
	case DRM_IOCTL_I915_GEM_CREATE:
		return create(fd, arg);
	case DRM_IOCTL_I915_GEM_MMAP_GTT:
		((struct drm_i915_gem_mmap_gtt *)arg)->offset = 0;
		return 0;
	case DRM_IOCTL_PRIME_HANDLE_TO_FD:
		return export(fd, arg);
	case DRM_IOCTL_GEM_CLOSE:
		return 0;
	}
	errno = ENOTTY;
	return -1;
}

int ioctl(int fd, unsigned long request, ...)
{
	int (*next)(int, unsigned long, ...) = dlsym(RTLD_NEXT, "ioctl");
	va_list more;
	void *arg;

	va_start(more, request);
	arg = va_arg(more, void *);
	va_end(more);
	/* Only a memfd has seals. */
	if (_IOC_TYPE(request) == DRM_IOCTL_BASE && fcntl(fd, F_GET_SEALS) >= 0)
		return render(fd, request, arg);
	return next(fd, request, arg);
}
