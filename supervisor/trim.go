package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// trim takes the older lines away from a file that has more than limit bytes, which may be open for writing alone:
// what stays is the newest lines, of limit/2 bytes or less. It takes the space of the lines that go for a copy of
// the lines that stay, and then cuts the file, so that the newest lines are in the file at every moment, whenever this
// process is killed. Without trim the log of an app that restarts for ever grows without end
// (TestTheFileOfMessagesIsLimited).
//
// The daemon, which may write to the file as well, must write with O_APPEND; else it leaves a hole after the cut. A
// line that the daemon writes between the end of the copy and ftruncate(2) is lost: only ext4 and XFS can remove the
// start of a file (fallocate(2)), and no system call truncates a file only if its size has not changed.
func trim(file *os.File, limit int64) error {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() <= limit {
		return err
	}
	// The descriptor may be O_WRONLY and O_APPEND.
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	from, err := startOfLine(f, info.Size()-limit/2)
	if err != nil {
		return err
	}
	// To the end, wherever that is by now: the daemon may write to the file.
	n, err := io.Copy(io.NewOffsetWriter(f, 0), io.NewSectionReader(f, from, 1<<62))
	if err != nil {
		return err
	}
	if err := f.Truncate(n); err != nil {
		return err
	}
	_, err = file.Seek(0, io.SeekEnd) // without O_APPEND, the next write would leave a hole
	return err
}

// startOfLine returns the offset of the first line of a file that begins behind an offset; the end of the file if none
// does.
func startOfLine(f *os.File, offset int64) (int64, error) {
	buffer := make([]byte, 4<<10)
	for {
		n, err := f.ReadAt(buffer, offset)
		if i := bytes.IndexByte(buffer[:n], '\n'); i >= 0 {
			return offset + int64(i) + 1, nil
		}
		offset += int64(n)
		if errors.Is(err, io.EOF) {
			return offset, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
