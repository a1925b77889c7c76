package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kurma.io/stager/cri/records"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestErrorsOfCallsAreOneLine(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	err := report("/runtime/Call", errors.Join(errors.New("first"), fmt.Errorf("second: %w", errInvalid)))
	if status.Code(err) != codes.InvalidArgument || status.Convert(err).Message() != "first; second: invalid request" {
		t.Errorf("%v", err)
	}
	if !strings.Contains(log.String(), "first; second") {
		t.Errorf("log %q", log.String())
	}
	log.Reset()
	if err := report("/runtime/Call", fmt.Errorf("container: %w", records.ErrNotFound)); status.Code(err) != codes.NotFound || log.Len() > 0 {
		t.Errorf("%v, log %q", err, log.String())
	}
}

func TestAPanicEndsOnlyItsCall(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	_, unary := reportUnary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/runtime/Call"},
		func(context.Context, any) (any, error) { panic("oh") })
	stream := reportStream(nil, nil, &grpc.StreamServerInfo{FullMethod: "/runtime/Stream"},
		func(any, grpc.ServerStream) error { panic("oh") })
	for _, err := range []error{unary, stream} {
		if status.Code(err) != codes.Internal || !strings.HasSuffix(err.Error(), ": oh") {
			t.Errorf("%v", err)
		}
	}
	for _, want := range []string{"TestAPanicEndsOnlyItsCall", "method=Call", "method=Stream"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("log %q, want %q", log.String(), want)
		}
	}
}

// The files of sandboxes and networks are volumes, whose paths may have no symbolic link.
func TestTheStateMayBeBehindALink(t *testing.T) {
	disk, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	config := Config{State: filepath.Join(t.TempDir(), "link")}
	if err := os.Symlink(disk, config.State); err != nil {
		t.Fatal(err)
	}
	config.Fill()
	s, err := open(t.Context(), config, "test")
	if err != nil {
		t.Fatal(err)
	}
	if s.config.State != disk {
		t.Errorf("state %s, want %s", s.config.State, disk)
	}
}
