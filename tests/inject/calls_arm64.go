package inject

import "golang.org/x/sys/unix"

const nativeArch = unix.AUDIT_ARCH_AARCH64

// oldCalls are the calls that newer architectures lack.
func oldCalls() []call { return nil }
