// The messages of the wire protocol 1.10, one on each line. Written by `kimi schema typescript`.

/**
 * A request to approve a call.
 *
 * `sender` is the tool's name, `action` is the key that approval for the session remembers.
 */
export interface ApprovalRequest {
  id: string;
  tool_call_id: string;
  sender: string;
  action: string;
  description: string;
  source_kind: "foreground_turn" | "background_agent" | null;
  source_id: string | null;
  agent_id: string | null;
  subagent_type: string | null;
  source_description: string | null;
  display: DisplayBlock[];
}

export interface ApprovalRequestAnswer {
  jsonrpc?: "2.0";
  id: string;
  result: ApprovalResult;
}

/** An approval request was resolved, by the client or by the program. */
export interface ApprovalResponse {
  request_id: string;
  response: "approve" | "approve_for_session" | "reject";
  feedback: string;
}

/** The answer to an ApprovalRequest. */
export interface ApprovalResult {
  request_id?: string | null;
  response: "approve" | "approve_for_session" | "reject";
  feedback?: string;
}

/** A sound. */
export interface AudioPart {
  type: "audio_url";
  audio_url: MediaUrl;
}

/** A sound. */
export interface AudioPartInput {
  type: "audio_url";
  audio_url: MediaUrlInput;
}

/** A background task and its state. */
export interface BackgroundTaskBlock {
  type: "background_task";
  task_id: string;
  kind: string;
  status: string;
  description: string;
}

/** One line for the user. */
export interface BriefBlock {
  type: "brief";
  text: string;
}

/** A side question was asked. */
export interface BtwBegin {
  id: string;
  question: string;
}

/** The side question was answered, or failed. */
export interface BtwEnd {
  id: string;
  response: string | null;
  error: string | null;
}

export interface CancelNotification {
  jsonrpc?: "2.0";
  id?: null;
  method: "cancel";
  params?: unknown;
}

export interface CancelRequest {
  jsonrpc?: "2.0";
  id: string | number;
  method: "cancel";
  params?: unknown;
}

export interface CancelResponse {
  jsonrpc: "2.0";
  id: string | number;
  result: EmptyResult;
}

/** Who the client is. */
export interface ClientIdentity {
  name: string;
  version?: string | null;
}

/** What a client sends. */
export type ClientMessage = InitializeRequest | PromptRequest | CancelRequest | ReplayRequest | SteerRequest | SetPlanModeRequest | CancelNotification | ApprovalRequestAnswer | ToolCallRequestAnswer | QuestionRequestAnswer | HookRequestAnswer | ErrorAnswer;

/** A command as clients list it. */
export interface CommandInfo {
  name: string;
  description: string;
  aliases: string[];
}

/** The context is being compacted. */
export type CompactionBegin = Record<string, never>;

/** Compaction is over, successful or not. */
export type CompactionEnd = Record<string, never>;

export type ContentPart = TextPart | ThinkPart | ImagePart | AudioPart | VideoPart;

export type ContentPartInput = TextPart | ThinkPartInput | ImagePartInput | AudioPartInput | VideoPartInput;

/** One hunk of a change; line numbers count from 1. A summary carries no file content. */
export interface DiffBlock {
  type: "diff";
  path: string;
  old_text: string;
  new_text: string;
  old_start: number;
  new_start: number;
  is_summary: boolean;
}

/** One hunk of a change; line numbers count from 1. A summary carries no file content. */
export interface DiffBlockInput {
  type: "diff";
  path: string;
  old_text: string;
  new_text: string;
  old_start?: number;
  new_start?: number;
  is_summary?: boolean;
}

export type DisplayBlock = BriefBlock | DiffBlock | TodoBlock | ShellBlock | BackgroundTaskBlock | UnknownBlock;

export type DisplayBlockInput = BriefBlock | DiffBlockInput | TodoBlock | ShellBlock | BackgroundTaskBlock | UnknownBlockInput;

/** A result without members. */
export type EmptyResult = Record<string, never>;

export interface ErrorAnswer {
  jsonrpc?: "2.0";
  id: string;
  error: {
    code: number;
    message: string;
    data?: unknown;
  };
}

export interface ErrorResponse {
  jsonrpc: "2.0";
  id: string | number | null;
  error: {
    code: number;
    message: string;
    data: null;
  };
}

/** The parameters of an `event`. */
export type EventParams = {
  type: "TurnBegin";
  payload: TurnBegin;
} | {
  type: "TurnEnd";
  payload: TurnEnd;
} | {
  type: "StepBegin";
  payload: StepBegin;
} | {
  type: "StepInterrupted";
  payload: StepInterrupted;
} | {
  type: "StepRetry";
  payload: StepRetry;
} | {
  type: "SteerInput";
  payload: SteerInput;
} | {
  type: "CompactionBegin";
  payload: CompactionBegin;
} | {
  type: "CompactionEnd";
  payload: CompactionEnd;
} | {
  type: "StatusUpdate";
  payload: StatusUpdate;
} | {
  type: "MCPLoadingBegin";
  payload: MCPLoadingBegin;
} | {
  type: "MCPLoadingEnd";
  payload: MCPLoadingEnd;
} | {
  type: "Notification";
  payload: Notification;
} | {
  type: "PlanDisplay";
  payload: PlanDisplay;
} | {
  type: "BtwBegin";
  payload: BtwBegin;
} | {
  type: "BtwEnd";
  payload: BtwEnd;
} | {
  type: "ContentPart";
  payload: ContentPart;
} | {
  type: "ToolCall";
  payload: ToolCall;
} | {
  type: "ToolCallPart";
  payload: ToolCallPart;
} | {
  type: "ToolResult";
  payload: ToolResult;
} | {
  type: "ApprovalResponse";
  payload: ApprovalResponse;
} | {
  type: "SubagentEvent";
  payload: SubagentEvent;
} | {
  type: "HookTriggered";
  payload: HookTriggered;
} | {
  type: "HookResolved";
  payload: HookResolved;
};

export interface EventNotification {
  jsonrpc: "2.0";
  method: "event";
  params: EventParams;
}

/** A tool that the client runs; `parameters` is the JSON Schema of an object. */
export interface ExternalToolDefinition {
  name: string;
  description: string;
  parameters: Record<string, unknown>;
}

/** The name of the called tool, and its arguments as JSON text. While they stream, the text is None or a prefix. */
export interface CalledFunction {
  name: string;
  arguments: string | null;
}

/** A hook that the client subscribed to has fired. */
export interface HookRequest {
  id: string;
  subscription_id: string;
  event: string;
  target: string;
  input_data: Record<string, unknown>;
}

export interface HookRequestAnswer {
  jsonrpc?: "2.0";
  id: string;
  result: HookResult;
}

/** The batch of hooks is done. */
export interface HookResolved {
  event: string;
  target: string;
  action: "allow" | "block";
  reason: string;
  duration_ms: number;
}

/** The answer to a HookRequest. */
export interface HookResult {
  request_id?: string | null;
  action?: "allow" | "block";
  reason?: string;
}

/** A hook that the client wants to be asked about; `timeout` is in seconds. */
export interface HookSubscriptionEntry {
  id: string;
  event: string;
  matcher?: string;
  timeout?: number;
}

/** A batch of hooks starts. */
export interface HookTriggered {
  event: string;
  target: string;
  hook_count: number;
}

/** A picture. */
export interface ImagePart {
  type: "image_url";
  image_url: MediaUrl;
}

/** A picture. */
export interface ImagePartInput {
  type: "image_url";
  image_url: MediaUrlInput;
}

/** The parameters of `initialize`. */
export interface InitializeCall {
  protocol_version: string;
  client?: ClientIdentity | null;
  external_tools?: ExternalToolDefinition[] | null;
  capabilities?: OfferedCapabilities | null;
  hooks?: HookSubscriptionEntry[] | null;
  slash_commands?: boolean | null;
}

export interface InitializeRequest {
  jsonrpc?: "2.0";
  id: string | number;
  method: "initialize";
  params: InitializeCall;
}

export interface InitializeResponse {
  jsonrpc: "2.0";
  id: string | number;
  result: InitializeResult;
}

/** The result of `initialize`; `external_tools` only if tools were offered. */
export interface InitializeResult {
  protocol_version: string;
  server: ServerIdentity;
  slash_commands: CommandInfo[];
  external_tools?: OfferedTools;
  hooks: ServerHooks;
  capabilities: ServerCapabilities;
}

/** The parameters of `prompt` and `steer`. */
export interface InputCall {
  user_input: string | ContentPartInput[];
}

/** The turn waits for MCP servers. */
export type MCPLoadingBegin = Record<string, never>;

/** The turn no longer waits for MCP servers. */
export type MCPLoadingEnd = Record<string, never>;

/** One MCP server: its state and the names of its tools as the model sees them. */
export interface McpServerStatus {
  name: string;
  status: "pending" | "connecting" | "connected" | "failed" | "unauthorized";
  tools: string[];
}

/** All MCP servers of the conversation. */
export interface McpStatus {
  loading: boolean;
  connected: number;
  total: number;
  tools: number;
  servers: McpServerStatus[];
}

/** The location of a medium: an http(s) URL, a provider file URL or a `data:` URI. */
export interface MediaUrl {
  url: string;
  id: string | null;
}

/** The location of a medium: an http(s) URL, a provider file URL or a `data:` URI. */
export interface MediaUrlInput {
  url: string;
  id?: string | null;
}

/** A cost. */
export interface MoneyAmount {
  amount: number;
  currency: string;
}

/** Something happened outside of the turn; `created_at` is in Unix seconds. */
export interface Notification {
  id: string;
  category: "task" | "agent" | "system";
  type: string;
  source_kind: string;
  source_id: string;
  title: string;
  body: string;
  severity: "info" | "success" | "warning" | "error";
  created_at: number;
  payload: Record<string, unknown>;
}

/** What the client can do; all false where nothing is said. */
export interface OfferedCapabilities {
  supports_question?: boolean;
  supports_plan_mode?: boolean;
  supports_usage?: boolean;
}

/** What became of the tools that the client offers. */
export interface OfferedTools {
  accepted: string[];
  rejected: RejectedTool[];
}

/** The plan that the next request asks the user about. */
export interface PlanDisplay {
  content: string;
  file_path: string;
}

/** The parameters of `set_plan_mode`. */
export interface PlanModeCall {
  enabled: boolean;
}

/** The result of `set_plan_mode`. */
export interface PlanModeResult {
  status: "ok";
  plan_mode: boolean;
}

export interface PromptRequest {
  jsonrpc?: "2.0";
  id: string | number;
  method: "prompt";
  params: InputCall;
}

export interface PromptResponse {
  jsonrpc: "2.0";
  id: string | number;
  result: PromptResult;
}

/** The result of `prompt`; `steps` only when the limit of steps was reached. */
export interface PromptResult {
  status: "finished" | "cancelled" | "max_steps_reached";
  steps?: number;
}

/** One question with 2 to 4 options; the client adds a free-text choice of its own. */
export interface Question {
  question: string;
  header: string;
  options: QuestionOption[];
  multi_select: boolean;
  body: string;
  other_label: string;
  other_description: string;
}

/** One choice of a question. */
export interface QuestionOption {
  label: string;
  description: string;
}

/** A request to ask the user 1 to 4 questions. */
export interface QuestionRequest {
  id: string;
  tool_call_id: string;
  questions: Question[];
}

export interface QuestionRequestAnswer {
  jsonrpc?: "2.0";
  id: string;
  result: QuestionResult;
}

/** The answer to a QuestionRequest: label or free text by question; empty if the questions were dismissed. */
export interface QuestionResult {
  request_id?: string | null;
  answers: Record<string, unknown>;
}

/** A tool that was refused, and the reason. */
export interface RejectedTool {
  name: string;
  reason: string;
}

export interface ReplayRequest {
  jsonrpc?: "2.0";
  id: string | number;
  method: "replay";
  params?: unknown;
}

export interface ReplayResponse {
  jsonrpc: "2.0";
  id: string | number;
  result: ReplayResult;
}

/** The result of `replay`: how many messages were sent. */
export interface ReplayResult {
  status: "finished" | "cancelled";
  events: number;
  requests: number;
}

/** The parameters of a `request`, which wants an answer. */
export type RequestParams = {
  type: "ApprovalRequest";
  payload: ApprovalRequest;
} | {
  type: "ToolCallRequest";
  payload: ToolCallRequest;
} | {
  type: "QuestionRequest";
  payload: QuestionRequest;
} | {
  type: "HookRequest";
  payload: HookRequest;
};

export interface RequestMessage {
  jsonrpc: "2.0";
  method: "request";
  id: string;
  params: RequestParams;
}

/** What the server can do. */
export interface ServerCapabilities {
  supports_question: true;
}

/** The hook events that there are, and how many hooks each one has. */
export interface ServerHooks {
  supported_events: ("PreToolUse" | "PostToolUse" | "PostToolUseFailure" | "UserPromptSubmit" | "Stop" | "StopFailure" | "SessionStart" | "SessionEnd" | "SubagentStart" | "SubagentStop" | "PreCompact" | "PostCompact" | "Notification")[];
  configured: Record<string, number>;
}

/** Who the server is. */
export interface ServerIdentity {
  name: string;
  version: string;
}

/** What the server sends. */
export type ServerMessage = EventNotification | RequestMessage | InitializeResponse | PromptResponse | CancelResponse | ReplayResponse | SteerResponse | SetPlanModeResponse | ErrorResponse;

export interface SetPlanModeRequest {
  jsonrpc?: "2.0";
  id: string | number;
  method: "set_plan_mode";
  params: PlanModeCall;
}

export interface SetPlanModeResponse {
  jsonrpc: "2.0";
  id: string | number;
  result: PlanModeResult;
}

/** A command that is to run. */
export interface ShellBlock {
  type: "shell";
  language: string;
  command: string;
}

/**
 * Figures that changed; None means unchanged. `context_usage` is a share of the window and may exceed 1.
 *
 * `token_usage` is that of one model call. `usage`, the totals, is for drivers: it is neither recorded nor part of the
 * event that every client gets (wire spec 6.2).
 */
export interface StatusUpdate {
  context_usage: number | null;
  context_tokens: number | null;
  max_context_tokens: number | null;
  token_usage: TokenUsage | null;
  message_id: string | null;
  plan_mode: boolean | null;
  mcp_status: McpStatus | null;
  usage?: UsageTotals | null;
}

/** A message that was queued while the turn ran is now part of it. */
export interface SteerInput {
  user_input: string | ContentPart[];
}

export interface SteerRequest {
  jsonrpc?: "2.0";
  id: string | number;
  method: "steer";
  params: InputCall;
}

export interface SteerResponse {
  jsonrpc: "2.0";
  id: string | number;
  result: SteerResult;
}

/** The result of `steer`: the message is queued. */
export interface SteerResult {
  status: "steered";
}

/** Model call number `n` of the turn starts; counts from 1. */
export interface StepBegin {
  n: number;
}

/** The step failed or was cancelled. */
export type StepInterrupted = Record<string, never>;

/** An attempt of step `n` failed; the next one starts after `wait_s` seconds. Discard what the attempt streamed. */
export interface StepRetry {
  n: number;
  next_attempt: number;
  max_attempts: number;
  wait_s: number;
  error_type: string;
  status_code: number | null;
}

/** An event of a subagent, inside the call that started it. */
export interface SubagentEvent {
  parent_tool_call_id: string | null;
  agent_id: string | null;
  subagent_type: string | null;
  task_tool_call_id: string | null;
  event: EventParams;
}

/** Text, or a piece of it while it streams. */
export interface TextPart {
  type: "text";
  text: string;
}

/** Thinking, or a piece of it. `encrypted` is the provider's signature and ends the part. */
export interface ThinkPart {
  type: "think";
  think: string;
  encrypted: string | null;
}

/** Thinking, or a piece of it. `encrypted` is the provider's signature and ends the part. */
export interface ThinkPartInput {
  type: "think";
  think: string;
  encrypted?: string | null;
}

/** The whole todo list after a change. */
export interface TodoBlock {
  type: "todo";
  items: TodoItem[];
}

/** One entry of the todo list. */
export interface TodoItem {
  title: string;
  status: "pending" | "in_progress" | "done";
}

/** The tokens of one model call; the three input counts add up to the whole input (wire spec 6.2). */
export interface TokenUsage {
  input_other: number;
  output: number;
  input_cache_read: number;
  input_cache_creation: number;
}

/** A call that the model asks for. `extras` is data of the provider that must be sent back with it. */
export interface ToolCall {
  type: "function";
  id: string;
  function: CalledFunction;
  extras: Record<string, unknown> | null;
}

/** The next piece of the arguments of the latest tool call. */
export interface ToolCallPart {
  arguments_part: string | null;
}

/**
 * A request to run an external tool.
 *
 * `id` is the id of the tool call; `arguments` is JSON text as the model sent it.
 */
export interface ToolCallRequest {
  id: string;
  name: string;
  arguments: string | null;
}

export interface ToolCallRequestAnswer {
  jsonrpc?: "2.0";
  id: string;
  result: ToolCallResult;
}

/** The answer to a ToolCallRequest; the id of the message says which. */
export interface ToolCallResult {
  tool_call_id?: string;
  return_value: ToolReturnValueInput;
}

/** A tool call is done. */
export interface ToolResult {
  tool_call_id: string;
  return_value: ToolReturnValue;
}

/**
 * The result of a tool call.
 *
 * `output` and `message` are for the model, `display` for the user, `extras` for debugging only. The first `brief`
 * block is the one-line summary. `message` is never empty in an error.
 */
export interface ToolReturnValue {
  is_error: boolean;
  output: string | ContentPart[];
  message: string;
  display: DisplayBlock[];
  extras: Record<string, unknown> | null;
}

/**
 * The result of a tool call.
 *
 * `output` and `message` are for the model, `display` for the user, `extras` for debugging only. The first `brief`
 * block is the one-line summary. `message` is never empty in an error.
 */
export interface ToolReturnValueInput {
  is_error: boolean;
  output: string | ContentPartInput[];
  message?: string;
  display?: DisplayBlockInput[];
  extras?: Record<string, unknown> | null;
}

/** A turn starts with this input. */
export interface TurnBegin {
  user_input: string | ContentPart[];
}

/** A turn that began has ended, whatever the outcome. */
export type TurnEnd = Record<string, never>;

/** A display block of an unknown type, kept so that it survives a round trip. */
export interface UnknownBlock {
  type: string;
  data: Record<string, unknown>;
}

/** A display block of an unknown type, which is kept. */
export type UnknownBlockInput = {
  type: string;
  [member: string]: unknown;
};

/** The tokens of several model calls, and their cost where it is known. */
export interface UsageOfCalls {
  input_other: number;
  output: number;
  input_cache_read: number;
  input_cache_creation: number;
  cost: MoneyAmount | null;
}

/** What the turn and the session have used. */
export interface UsageTotals {
  turn: UsageOfCalls;
  session: UsageOfCalls;
}

/** A video. */
export interface VideoPart {
  type: "video_url";
  video_url: MediaUrl;
}

/** A video. */
export interface VideoPartInput {
  type: "video_url";
  video_url: MediaUrlInput;
}
