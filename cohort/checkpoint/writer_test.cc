#include "cohort/checkpoint/writer.h"

#include <gmock/gmock.h>

#include <future>

#include "cohort/base/failure_of.h"
#include "cohort/base/file.h"
#include "cohort/checkpoint/samples.h"

namespace cohort::checkpoint {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Deadline soon() { return Deadline::in(30s); }

void fill(Snapshot& snapshot, std::int64_t step) {
  const SampleCheckpoint sample(step);
  for (const TensorFile& file : sample.files) {
    for (const TensorView& tensor : file.tensors) snapshot.add(file.name, tensor);
    snapshot.set_metadata(file.name, file.metadata);
  }
  snapshot.manifest = sample.manifest;
}
Snapshot filled(Writer& writer, std::int64_t step) {
  Snapshot snapshot = writer.begin();
  fill(snapshot, step);
  return snapshot;
}

// A disk that hangs until it is released.
struct Gate {
  std::promise<void> entered, open;
  std::shared_future<void> opened = open.get_future().share();
  Writer::Save save() {
    return [this](const Manifest& manifest, std::span<const TensorFile>) {
      if (manifest.step == 1) {
        entered.set_value();
        opened.wait();
      }
      return Saved{{"", manifest}};
    };
  }
};

TEST(Snapshot, HoldsCopiesInAlignedMemoryThatItReuses) {
  Snapshot snapshot;
  std::vector<std::byte> bytes(100, std::byte{7});
  snapshot.reserve(1000);
  const auto capacity = snapshot.capacity();
  snapshot.add("a", {"x", Dtype::u8, {100}, bytes});
  const Bytes memory = snapshot.place("a", "y", Dtype::f32, {5, 5});
  bytes.assign(100, std::byte{9});
  const auto& tensors = snapshot.files().at(0).tensors;
  EXPECT_EQ(tensors[0].data[99], std::byte{7});
  EXPECT_EQ(tensors[1].data.data(), memory.data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 64, 0U);
  EXPECT_EQ(snapshot.bytes(), 200U);
  snapshot.clear();
  EXPECT_TRUE(snapshot.files().empty());
  snapshot.add("a", {"x", Dtype::u8, {100}, bytes});
  EXPECT_EQ(snapshot.capacity(), capacity);
  EXPECT_THAT(failure_of([&] { snapshot.add("a", {"z", Dtype::f32, {5}, bytes}); }).what, HasSubstr("20 bytes by its shape, 100"));
  EXPECT_EQ(failure_of([&] { snapshot.place("a", "z", Dtype::f4, {1}); }).kind, Kind::usage);
}

TEST(Writer, SavesInTheBackgroundAndReportsOnce) {
  const TempDir folder;
  const Store store(folder.path());
  Writer writer(store);
  EXPECT_FALSE(writer.poll());
  EXPECT_FALSE(writer.wait(soon())) << "nothing in flight";
  EXPECT_TRUE(writer.submit(filled(writer, 5)));
  const auto outcome = writer.wait(soon());
  ASSERT_TRUE(outcome && outcome->saved);
  EXPECT_FALSE(outcome->error);
  EXPECT_EQ(outcome->step, 5);
  EXPECT_FALSE(writer.poll());
  const auto newest = store.newest().checkpoint;
  ASSERT_TRUE(newest);
  const SampleCheckpoint sample(5);
  EXPECT_TRUE(std::ranges::equal(SafetensorsFile(newest->file("model.safetensors")).read("weight"), sample.model.tensors()[0].data));
  EXPECT_GT(writer.begin().capacity(), 0U) << "the memory comes back";
}

TEST(Writer, PreparedMemoryIsThereForTheFirstSnapshot) {
  Writer writer([](const Manifest& manifest, std::span<const TensorFile>) { return Saved{{"", manifest}}; });
  writer.prepare(50_MiB);
  Snapshot snapshot;
  for (const auto end = soon(); snapshot.capacity() == 0 && !end.passed(); snapshot = writer.begin()) std::this_thread::yield();
  EXPECT_GE(snapshot.capacity(), 50_MiB);
  EXPECT_EQ(snapshot.bytes(), 0U);
}

TEST(Writer, TrainingGoesOnWhileTheDiskHangsAndLaterOnesAreSkipped) {
  Gate gate;
  Writer writer(gate.save());
  EXPECT_TRUE(writer.submit(filled(writer, 1)));
  gate.entered.get_future().wait();
  EXPECT_TRUE(writer.busy());
  EXPECT_FALSE(writer.poll());
  testing::internal::CaptureStderr();
  EXPECT_FALSE(writer.submit(filled(writer, 2)));
  EXPECT_FALSE(writer.submit(filled(writer, 3)));
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("warning: checkpoint of step 2 skipped: step 1 is still being written"), HasSubstr("error: checkpoint of step 3")));
  EXPECT_EQ(writer.skipped(), 2);
  const auto error = failure_of([&] { writer.wait(Deadline::in(1ms)); });
  EXPECT_EQ(error.kind, Kind::timeout);
  EXPECT_THAT(error.what, HasSubstr("step 1"));
  gate.open.set_value();
  EXPECT_EQ(writer.wait(soon())->step, 1);
  EXPECT_TRUE(writer.submit(filled(writer, 4)));
  EXPECT_EQ(writer.skipped(), 0);
  EXPECT_EQ(writer.wait(soon())->step, 4);
}

TEST(Writer, WithPatienceTheSecondWaitsForTheFirst) {
  Gate gate;
  Writer writer(gate.save(), {.patience = 30s});
  EXPECT_TRUE(writer.submit(filled(writer, 1)));
  gate.entered.get_future().wait();
  auto second = std::async(std::launch::async, [&] { return writer.submit(filled(writer, 2)); });
  gate.open.set_value();
  EXPECT_TRUE(second.get());
  EXPECT_EQ(writer.wait(soon())->step, 1);
  EXPECT_EQ(writer.wait(soon())->step, 2);
}

TEST(Writer, AFailedSaveIsAnOutcomeAndTheNextOneIsTried) {
  int calls = 0;
  Writer writer([&](const Manifest& manifest, std::span<const TensorFile>) -> Saved {
    if (++calls == 1) throw_failure(Kind::system, "no space");
    if (calls == 2) throw std::bad_alloc();
    return Saved{{"", manifest}};
  });
  writer.submit(filled(writer, 1));
  EXPECT_EQ(writer.wait(soon())->error->what, "no space");
  writer.submit(filled(writer, 2));
  EXPECT_THAT(writer.wait(soon())->error->what, HasSubstr("checkpoint of step 2: std::bad_alloc"));
  writer.submit(filled(writer, 3));
  EXPECT_FALSE(writer.wait(soon())->error);
}

TEST(Writer, AFailureIsToldByWhoTakesItOrElseAtTheEnd) {
  testing::internal::CaptureStderr();
  {
    Writer writer([](const Manifest& manifest, std::span<const TensorFile>) -> Saved {
      throw_failure(Kind::system, "no space for step {}", manifest.step);
    });
    writer.submit(filled(writer, 1));
    EXPECT_TRUE(writer.wait(soon())->error);
    writer.submit(filled(writer, 2));
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(Not(HasSubstr("step 1")), HasSubstr("error: no space for step 2")));
}

TEST(Writer, TheLastSnapshotIsOnDiskWhenTheWriterGoes) {
  const TempDir folder;
  const Store store(folder.path());
  {
    Writer writer(store);
    writer.submit(filled(writer, 8));
  }
  EXPECT_EQ(store.newest().checkpoint->manifest.step, 8);
}

TEST(Writer, GivesUpOnAHangingDiskInBoundedTime) {
  auto gate = std::make_shared<Gate>();
  std::promise<void> ended;
  testing::internal::CaptureStderr();
  {
    Writer writer(
        [gate, &ended, save = gate->save()](const Manifest& manifest, std::span<const TensorFile> files) {
          auto saved = save(manifest, files);
          ended.set_value();
          return saved;
        },
        {.drain = 10ms});
    writer.submit(filled(writer, 1));
    gate->entered.get_future().wait();
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("checkpoint of step 1 is not on disk after 10 ms and is given up"));
  gate->open.set_value();
  EXPECT_EQ(ended.get_future().wait_for(30s), std::future_status::ready) << "its thread ends by itself";
}

}  // namespace
}  // namespace cohort::checkpoint
