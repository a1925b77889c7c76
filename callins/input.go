package callins

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// settingsDescriptor is the descriptor on which a daemon passes run's settings.
const settingsDescriptor = 3

// settingsTime is how long run waits for all of its settings.
const settingsTime = 10 * time.Second

const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// readSettings reads descriptor fd up to end of file and closes it. It fails
// once the limit has passed, or with more than maxSettings bytes. The descriptor's mode
// stays as it is, since its open file description may be shared.
func readSettings(fd int, limit time.Duration) ([]byte, error) {
	deadline := time.Now().Add(limit)
	// A descriptor that is closed on exec was not passed by the daemon: Go's
	// runtime may have opened it for itself.
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC != 0 {
		return nil, fmt.Errorf("read settings: descriptor %d was not passed", fd)
	}
	defer unix.Close(fd)
	var text []byte
	chunk := make([]byte, 64<<10)
	for {
		if err := waitReadable(fd, deadline); err != nil {
			return nil, fmt.Errorf("read settings from descriptor %d: %w", fd, err)
		}
		n, err := unix.Read(fd, chunk)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case err != nil:
			return nil, fmt.Errorf("read settings from descriptor %d: %w", fd, err)
		case n == 0:
			return text, nil
		case len(text)+n > maxSettings:
			return nil, fmt.Errorf("settings are larger than %d bytes", maxSettings)
		default:
			text = append(text, chunk[:n]...)
		}
	}
}

func waitReadable(fd int, deadline time.Time) error {
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return errors.New("no end of file in time")
		}
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(poll, int(left.Milliseconds())+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll: %w", err)
		}
		if n > 0 {
			return nil
		}
	}
}

// sealed returns a memfd that holds text and that no process can change.
func sealed(name string, text []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make memory file %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(text); err != nil {
		f.Close()
		return nil, fmt.Errorf("fill memory file: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		f.Close()
		return nil, fmt.Errorf("seal memory file %s: %w", name, err)
	}
	return f, nil
}

// readSealed reads a file made by sealed, of at most limit bytes. Any other file is
// refused, because reading it could block or never end.
func readSealed(f *os.File, limit int64) ([]byte, error) {
	have, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || have&seals != seals {
		return nil, errors.New("passed descriptor is not a sealed memory file")
	}
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read memory file: %w", err)
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("memory file has %d bytes, want at most %d", info.Size(), limit)
	}
	text := make([]byte, info.Size())
	if _, err := f.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read memory file: %w", err)
	}
	return text, nil
}
