package container

// Filter is a compiled seccomp program: struct sock_filter instructions in the
// machine's byte order, as seccomp_export_bpf(3) writes them. It is made once
// per pod and loaded by each process.
type Filter struct {
	program []byte
}
