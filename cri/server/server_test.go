package server

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"kurma.io/stager/cri/records"

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
