package server

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// notice is that something has happened to a container or a sandbox.
type notice struct {
	kind        runtimeapi.ContainerEventType
	id, sandbox string
	when        time.Time
}

func event(kind runtimeapi.ContainerEventType, id, sandbox string) notice {
	return notice{kind, id, sandbox, time.Now()}
}

// subscribers are the streams of events that are open.
type subscribers struct {
	mu  sync.Mutex
	all map[chan notice]bool
}

// backlog is how many events a subscriber may be behind.
const backlog = 1000

func (s *subscribers) add() chan notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[chan notice]bool)
	}
	c := make(chan notice, backlog)
	s.all[c] = true
	return c
}

func (s *subscribers) remove(c chan notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[c] {
		delete(s.all, c)
		close(c)
	}
}

func (s *subscribers) any() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) > 0
}

// send sends to every subscriber. One that is too far behind is ended: kubelet lists everything and begins again.
func (s *subscribers) send(n notice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.all {
		select {
		case c <- n:
		default:
			delete(s.all, c)
			close(c)
		}
	}
}

// GetContainerEvents implements the CRI.
func (s *Server) GetContainerEvents(_ *runtimeapi.GetEventsRequest, stream runtimeapi.RuntimeService_GetContainerEventsServer) error {
	notices := s.events.add()
	defer s.events.remove(notices)
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case <-s.ending.Done():
			return nil
		case n, ok := <-notices:
			if !ok {
				return errors.New("events were not read in time")
			}
			if err := stream.Send(s.describeNotice(stream.Context(), n)); err != nil {
				return err
			}
		}
	}
}

// describeNotice adds the statuses as they are now; a sandbox that was removed has none.
func (s *Server) describeNotice(ctx context.Context, n notice) *runtimeapi.ContainerEventResponse {
	response := &runtimeapi.ContainerEventResponse{ContainerId: n.id, ContainerEventType: n.kind, CreatedAt: n.when.UnixNano()}
	sandbox, err := s.records.Sandbox(n.sandbox)
	if err != nil {
		return response
	}
	response.PodSandboxStatus = s.sandboxStatus(sandbox)
	if response.ContainersStatuses, err = s.statusesOf(ctx, sandbox.ID); err != nil {
		slog.Warn("event without statuses", "sandbox", sandbox.ID, "error", err)
	}
	return response
}

// lookForEnds is how often the server looks for containers that have ended, while there is a subscriber.
const lookForEnds = 200 * time.Millisecond

// watch sends an event for each container that ends, until ctx ends.
func (s *Server) watch(ctx context.Context) {
	look := time.NewTicker(lookForEnds)
	defer look.Stop()
	var known map[string]bool // the containers that have ended; nil while there is no subscriber
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		if !s.events.any() {
			known = nil
			continue
		}
		ended, err := s.listContainers(&runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED},
		})
		if err != nil {
			slog.Warn("containers that have ended are not found", "error", err)
			continue
		}
		now := make(map[string]bool)
		for _, c := range ended {
			now[c.Id] = true
			if known != nil && !known[c.Id] {
				s.events.send(event(runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, c.Id, c.PodSandboxId))
			}
		}
		known = now
	}
}
