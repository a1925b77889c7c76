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
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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

// Kubelet takes no larger messages, and a pod's author chooses the annotations.
func TestListsAreSentInPartsThatFit(t *testing.T) {
	var all []*runtimeapi.PodSandbox
	for range 110 {
		all = append(all, &runtimeapi.PodSandbox{Annotations: map[string]string{"a": strings.Repeat("x", 200<<10)}})
	}
	sent := 0
	err := sendAll(all, nil, func(part []*runtimeapi.PodSandbox) error {
		if size := proto.Size(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: part}); size > maxMessage || len(part) == 0 {
			t.Errorf("part of %d bytes and %d sandboxes", size, len(part))
		}
		sent += len(part)
		return nil
	})
	if err != nil || sent != len(all) {
		t.Errorf("%d sandboxes are sent, %v", sent, err)
	}
}

func TestAPanicEndsOnlyItsCall(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	_, unary := new(Server).reportUnary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/runtime/Call"},
		func(context.Context, any) (any, error) { panic("oh") })
	stream := new(Server).reportStream(nil, nil, &grpc.StreamServerInfo{FullMethod: "/runtime/Stream"},
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
