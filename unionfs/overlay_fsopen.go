package unionfs

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// errAskMount2 marks an error of mounting with fsopen(2) after which mount(2) can still succeed: this
// kernel lacks fsopen(2) (before 5.2) or the option lowerdir+ (before 6.8), or fsconfig(2) cannot
// take a path.
var errAskMount2 = errors.New("not possible with fsopen")

// open returns a descriptor of the overlay, mounted but not attached anywhere: it
// vanishes when it is closed unless move_mount(2) attached it. The caller closes it.
func (p overlayPlan) open() (int, error) {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return -1, fmt.Errorf("%w: %w", errAskMount2, err)
	}
	if err != nil {
		return -1, fmt.Errorf("open overlay file system: %w", err)
	}
	defer unix.Close(fs)
	if !checksNames(fs) {
		return -1, fmt.Errorf("%w: before kernel 6.5", errAskMount2)
	}
	if err := p.configure(fs); errors.Is(err, unix.EINVAL) {
		return -1, fmt.Errorf("%w: %w", errAskMount2, err)
	} else if err != nil {
		return -1, err
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("mount overlay: %w", err)
	}
	return tree, nil
}

// checksNames reports whether the kernel checks an option when it is set. Before 6.5 it accepted any
// name, also lowerdir+; the mount then failed with a line in the kernel's log.
func checksNames(fs int) bool {
	if err := unix.FsconfigSetFlag(fs, "no-such-option"); err == nil {
		return false
	}
	// kernelSays must not report the error of this trial. A missing message is harmless.
	_, _ = unix.Read(fs, make([]byte, 1024))
	return true
}

func (p overlayPlan) configure(fs int) error {
	for _, dir := range p.lower {
		if err := setOption(fs, "lowerdir+", dir); err != nil {
			return err
		}
	}
	options := append(overlayOptions(), [2]string{"upperdir", p.upper}, [2]string{"workdir", p.work})
	for _, o := range options {
		if err := setOption(fs, o[0], o[1]); err != nil {
			return err
		}
	}
	if err := unix.FsconfigSetFlag(fs, "volatile"); err != nil {
		return fmt.Errorf("set volatile: %w", kernelSays(fs, err))
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return fmt.Errorf("create overlay: %w", kernelSays(fs, err))
	}
	return nil
}

// maxOption is the longest value that fsconfig(2) accepts.
const maxOption = 255

// setOption sets one option. It leaves paths with a backslash to mount(2): whether a backslash quotes
// depends on the option and the kernel.
func setOption(fs int, name, value string) error {
	err := error(unix.EINVAL)
	if len(value) <= maxOption && !strings.Contains(value, `\`) {
		err = unix.FsconfigSetString(fs, name, value)
	}
	if err != nil {
		return fmt.Errorf("set %s=%s: %w", name, value, kernelSays(fs, err))
	}
	return nil
}

// kernelSays adds the messages that the kernel keeps for a descriptor of
// fsopen(2): each read returns one, "e text" for an error.
func kernelSays(fs int, err error) error {
	var said []string
	for buf := make([]byte, 1024); len(said) < 8; {
		n, readErr := unix.Read(fs, buf)
		if readErr != nil || n <= 0 {
			break
		}
		if text, ok := strings.CutPrefix(string(buf[:n]), "e "); ok {
			said = append(said, strings.TrimSpace(text))
		}
	}
	if len(said) == 0 {
		return err
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(said, "; "))
}
