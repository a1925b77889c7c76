package callins

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// conn is one end of a call: packets of JSON with descriptors. Sends and
// receives may run concurrently with each other, not with their own kind.
type conn struct{ *net.UnixConn }

// packet holds what came beside the JSON. Its receiver closes the files.
type packet struct {
	files []*os.File
	pid   int // the sender's, or the one that it named, if the receiver has SO_PASSCRED
}

func (p packet) close() {
	for _, f := range p.files {
		f.Close()
	}
}

// send sends msg as one packet with the files' descriptors, which stay the
// caller's, and further control messages as they are.
func (c conn) send(msg any, files []*os.File, control ...byte) error {
	text, err := json.Marshal(msg)
	if err != nil {
		return fmt.Errorf("encode message: %w", err)
	}
	if len(files) > 0 {
		fds, err := descriptors(files)
		if err != nil {
			return err
		}
		control = append(control, unix.UnixRights(fds...)...)
	}
	if _, _, err := c.WriteMsgUnix(text, control, nil); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	return nil
}

// descriptors returns the files' numbers and, unlike File.Fd, leaves their mode as it
// is. The files must stay open while the numbers are used.
func descriptors(files []*os.File) ([]int, error) {
	fds := make([]int, 0, len(files))
	for _, f := range files {
		err := withDescriptor(f, func(fd int) error {
			fds = append(fds, fd)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("pass descriptor %s: %w", f.Name(), err)
		}
	}
	return fds, nil
}

// receive reads one packet into msg. At the end of the connection the error is
// io.EOF. After an error no file is left open.
func (c conn) receive(msg any) (packet, error) {
	text := make([]byte, maxPacket)
	control := make([]byte, unix.CmsgSpace(4*maxFiles)+unix.CmsgSpace(unix.SizeofUcred))
	n, cn, flags, _, err := c.ReadMsgUnix(text, control)
	if errors.Is(err, unix.ECONNRESET) {
		// The other end was closed before it had read all. The packets that it sent
		// come after this error (unix_release_sock, __skb_try_recv_datagram).
		n, cn, flags, _, err = c.ReadMsgUnix(text, control)
	}
	if errors.Is(err, io.EOF) {
		// The kernel finds no packet first, and looks afterwards whether the other end was closed
		// (unix_dgram_recvmsg): it misses a last packet that came between the two. The second read
		// finds that packet, and nothing comes after it.
		n, cn, flags, _, err = c.ReadMsgUnix(text, control)
	}
	p, perr := parseControl(control[:cn]) // also after an error: files that came must be closed
	if err := receiveError(n, flags, err, perr); err != nil {
		p.close()
		return packet{}, err
	}
	if err := json.Unmarshal(text[:n], msg); err != nil {
		p.close()
		return packet{}, fmt.Errorf("decode message: %w", err)
	}
	return p, nil
}

func receiveError(n, flags int, err, controlErr error) error {
	switch {
	case errors.Is(err, io.EOF):
		return io.EOF
	case err != nil:
		return fmt.Errorf("receive message: %w", err)
	case flags&unix.MSG_TRUNC != 0:
		return fmt.Errorf("message is longer than %d bytes", maxPacket)
	case flags&unix.MSG_CTRUNC != 0:
		return errors.New("message has too many descriptors, or no more can be opened")
	case n == 0:
		return io.EOF
	}
	return controlErr
}

// parseControl takes every descriptor out of a packet's control messages, those
// before an error included.
func parseControl(control []byte) (packet, error) {
	var p packet
	for len(control) >= unix.SizeofCmsghdr {
		header, data, rest, err := unix.ParseOneSocketControlMessage(control)
		if err != nil {
			return p, fmt.Errorf("read control message: %w", err)
		}
		control = rest
		message := unix.SocketControlMessage{Header: header, Data: data}
		switch header.Type {
		case unix.SCM_RIGHTS:
			fds, err := unix.ParseUnixRights(&message)
			if err != nil {
				return p, fmt.Errorf("read passed descriptors: %w", err)
			}
			for _, fd := range fds {
				p.files = append(p.files, os.NewFile(uintptr(fd), "passed"))
			}
		case unix.SCM_CREDENTIALS:
			cred, err := unix.ParseUnixCredentials(&message)
			if err != nil {
				return p, fmt.Errorf("read passed credentials: %w", err)
			}
			p.pid = int(cred.Pid)
		}
	}
	return p, nil
}

// withDescriptor calls f with the descriptor's number. Meanwhile the descriptor stays
// open and in its mode, even if another goroutine closes it.
func withDescriptor(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}
