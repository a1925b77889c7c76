package boot

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The C library's start writes to such pages and then lets them only be read (RELRO).
func TestTheReleaseKeepsReadOnlyPagesThatWereWritten(t *testing.T) {
	page := mapProgram(t, unix.PROT_READ|unix.PROT_WRITE)
	page[0] = 'w'
	if err := unix.Mprotect(page, unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	releaseStartMemory()
	if page[0] != 'w' {
		t.Errorf("byte %#x of the program's file is back", page[0])
	}
}

func TestTheReleaseGivesBackCleanPages(t *testing.T) {
	page := mapProgram(t, unix.PROT_READ)
	if !resident(t, page) {
		t.Fatal("not resident")
	}
	releaseStartMemory()
	if resident(t, page) {
		t.Error("still mapped")
	}
}

// mapProgram maps and reads the first page of this program's file once more.
func mapProgram(t *testing.T, access int) []byte {
	t.Helper()
	program, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	page, err := unix.Mmap(int(program.Fd()), 0, os.Getpagesize(), access, unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(page); err != nil {
			t.Error(err)
		}
	})
	return page
}

// resident says whether the page is in this process's page table (proc_pid_pagemap(5)).
func resident(t *testing.T, page []byte) bool {
	t.Helper()
	table, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	entry := make([]byte, 8)
	n := uintptr(unsafe.Pointer(unsafe.SliceData(page))) / uintptr(os.Getpagesize())
	if _, err := table.ReadAt(entry, int64(n)*8); err != nil {
		t.Fatal(err)
	}
	return entry[7]&0x80 != 0
}
