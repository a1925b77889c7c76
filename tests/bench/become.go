package main

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// becomeStager enters the surroundings of a stager in the namespaces that this process
// was started in, waits for the word, and executes the stager. It returns only on error.
func becomeStager(text string) error {
	var p plan
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return fmt.Errorf("read the plan: %w", err)
	}
	control := os.NewFile(uintptr(p.Control), "control")
	for _, step := range []func() error{loopbackUp, p.Enter} {
		if err := step(); err != nil {
			return err
		}
	}
	if err := unix.Close(3); err != nil {
		return fmt.Errorf("close descriptor 3: %w", err)
	}
	one := make([]byte, 1)
	if _, err := control.Write(one); err != nil {
		return fmt.Errorf("say that all is prepared: %w", err)
	}
	if _, err := control.Read(one); err != nil {
		return fmt.Errorf("wait for the word: %w", err)
	}
	unix.CloseOnExec(p.Control)
	err := unix.Exec(p.Exec[0], p.Exec, append([]string{"HOME=/"}, p.Env...))
	return fmt.Errorf("execute the stager: %w", err)
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	return nil
}
