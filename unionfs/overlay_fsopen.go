package unionfs

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// errNoLowerdirPlus says that this kernel, or one of the paths, asks for mount(2).
var errNoLowerdirPlus = errors.New("fsconfig lowerdir+ is not available")

// open returns a descriptor of the overlay, mounted but not attached anywhere: it
// vanishes when it is closed unless move_mount(2) attached it. The caller closes it.
func (p overlayPlan) open() (int, error) {
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return -1, errNoLowerdirPlus
	}
	if err != nil {
		return -1, fmt.Errorf("open overlay file system: %w", err)
	}
	defer unix.Close(fs)
	if err := p.configure(fs); err != nil {
		return -1, err
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("mount overlay: %w", err)
	}
	return tree, nil
}

func (p overlayPlan) configure(fs int) error {
	for i, dir := range p.lower {
		if err := setOption(fs, "lowerdir+", dir, i == 0); err != nil {
			return err
		}
	}
	options := append(overlayOptions(), [2]string{"upperdir", p.upper}, [2]string{"workdir", p.work})
	for _, o := range options {
		if err := setOption(fs, o[0], o[1], false); err != nil {
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

// maxOption is the longest value that fsconfig(2) takes.
const maxOption = 255

// setOption sets one option. mayBeNew says that this kernel may not know its
// name; that, or a value that cannot be given so, is errNoLowerdirPlus.
func setOption(fs int, name, value string, mayBeNew bool) error {
	// Whether a backslash quotes depends on the option and the kernel.
	if len(value) > maxOption || strings.Contains(value, `\`) {
		return errNoLowerdirPlus
	}
	err := unix.FsconfigSetString(fs, name, value)
	if err == nil {
		return nil
	}
	if mayBeNew && errors.Is(err, unix.EINVAL) {
		return errNoLowerdirPlus
	}
	return fmt.Errorf("set %s=%s: %w", name, value, kernelSays(fs, err))
}

// kernelSays adds the messages that the kernel keeps for a descriptor of
// fsopen(2): each read gives one, "e text" for an error.
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
